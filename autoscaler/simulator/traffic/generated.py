"""Our own traffic: Zipf popularity, tenants that switch on and off, bursts, a season, tenants that come and go.

Rates are piecewise constant over short windows, and arrivals are Poisson within them; bursts, seasons and on/off
processes give the rest of the variation. Each window has a seed of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autoscaler.simulator.traffic.arrivals import (
    Arrivals,
    Floats,
    Ints,
    TraceError,
    check_not_nan,
    check_not_negative,
    check_positive,
    zipf_weights,
)

_POSITIVE = ("adapters", "rate_rps", "on_s", "season_s", "window_s", "prompt_tokens", "output_tokens")
_NOT_NEGATIVE = ("zipf_exponent", "off_s", "lifetime_s", "tokens_spread", "always_on")


@dataclass(frozen=True, slots=True)
class Burst:
    """One adapter at `factor` times its rate for a while."""

    adapter: int
    start_s: float
    duration_s: float
    factor: float


@dataclass(frozen=True, slots=True)
class GeneratorSettings:
    """What the generated traffic looks like.

    Attributes:
        adapters: how many; the first is the most popular.
        rate_rps: mean of the whole fleet over a season, before bursts.
        zipf_exponent: skew of popularity.
        on_s, off_s: mean lengths of an adapter's active and silent spells; 0 silent means always on. The rate while on
            is raised, so that the mean stays.
        always_on: the first so many adapters never switch off.
        season_s, season_ratio: length of the season, and its highest over its lowest rate; ratio 1 means none.
        lifetime_s: mean life of an adapter, after which another one takes its place; 0 means for ever.
        bursts: on schedule.
        prompt_tokens, output_tokens: medians over adapters; each has its own, and each request varies around it.
        tokens_spread: sigma of the logarithm, between adapters and again within one.
        window_s: rates hold for so long.
    """

    adapters: int = 100
    rate_rps: float = 10.0
    zipf_exponent: float = 1.0
    on_s: float = 1500.0
    off_s: float = 0.0
    always_on: int = 0
    season_s: float = 86_400.0
    season_ratio: float = 1.0
    lifetime_s: float = 0.0
    bursts: tuple[Burst, ...] = ()
    prompt_tokens: float = 400.0
    output_tokens: float = 120.0
    tokens_spread: float = 0.5
    window_s: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        check_positive(**{name: getattr(self, name) for name in _POSITIVE})
        check_not_negative(**{name: getattr(self, name) for name in _NOT_NEGATIVE})
        if not 1 <= self.season_ratio < math.inf:
            raise TraceError(f"season_ratio is {self.season_ratio}: it must be a finite number, at least 1")
        for burst in self.bursts:
            check_not_negative(**{"a burst's start_s": burst.start_s, "a burst's factor": burst.factor})
            if not (0 <= burst.adapter < self.adapters and 0 < burst.duration_s < math.inf):
                raise TraceError(
                    f"a burst of adapter {burst.adapter} for {burst.duration_s:g} s to {burst.factor:g} times its rate "
                    f"cannot be: adapters are 0 to {self.adapters - 1}, and it must last"
                )


@dataclass(frozen=True)
class GeneratedTrace:
    """Endless without `duration_s`; the same seed gives the same requests."""

    settings: GeneratorSettings
    seed: int = 0
    duration_s: float = float("inf")

    def __post_init__(self) -> None:
        """Refuse a length that is none."""
        check_not_nan(duration_s=self.duration_s)

    @cached_property
    def adapters(self) -> tuple[str, ...]:
        """`adapter-0000`, the most popular, and so on."""
        return tuple(f"adapter-{i:04d}" for i in range(self.settings.adapters))

    def chunks(self, start_s: float = 0.0) -> Iterator[Arrivals]:
        """One chunk a window that has requests. Raises TraceError for a start that never comes."""
        check_not_negative(start_s=start_s)
        lengths, switches = self._lengths, _Switches(self.settings, self.seed)
        window = 0
        while (begin_s := window * self.settings.window_s) < self.duration_s:
            on = switches.at(begin_s)
            if begin_s + self.settings.window_s > start_s:
                chunk = self._window(window, begin_s, on, lengths)
                if len(chunk):
                    yield chunk
            window += 1

    def rates_rps(self, at_s: float) -> Floats:
        """Every adapter's rate at a moment, were all of them on: float64 (A)."""
        s = self.settings
        swing = (s.season_ratio - 1) / (s.season_ratio + 1)
        # The season begins at its lowest, so that a short run sees it rise.
        season = 1 - swing * np.cos(2 * np.pi * at_s / s.season_s)
        rates = zipf_weights(s.adapters, s.zipf_exponent) * s.rate_rps * season
        for burst in s.bursts:
            if burst.start_s <= at_s < burst.start_s + burst.duration_s:
                rates[burst.adapter] *= burst.factor
        return np.asarray(rates)

    def _window(self, window: int, begin_s: float, on: Floats, lengths: tuple[Floats, Floats]) -> Arrivals:
        rng = np.random.default_rng((self.seed, window))
        length_s = min(self.settings.window_s, self.duration_s - begin_s)
        counts = rng.poisson(self.rates_rps(begin_s) * on * length_s)
        adapter = np.repeat(np.arange(len(counts)), counts)
        time_s = begin_s + rng.random(len(adapter)) * length_s
        order = np.argsort(time_s, kind="stable")
        adapter = adapter[order]
        prompt, output = (self._tokens(rng, median[adapter]) for median in lengths)
        return Arrivals(time_s[order], adapter, prompt, output)

    def _tokens(self, rng: np.random.Generator, medians: Floats) -> Ints:
        drawn = medians * np.exp(self.settings.tokens_spread * rng.standard_normal(len(medians)))
        return np.maximum(1, np.round(drawn)).astype(np.int64)

    @cached_property
    def _lengths(self) -> tuple[Floats, Floats]:
        """Median prompt and answer of each adapter: float64 (A) each."""
        s, rng = self.settings, np.random.default_rng((self.seed, 2**32 - 1))
        spread = np.exp(s.tokens_spread * rng.standard_normal((2, s.adapters)))
        return s.prompt_tokens * spread[0], s.output_tokens * spread[1]


class _Switches:
    """Which adapters are on: exponential spells, and lives that begin and end."""

    def __init__(self, settings: GeneratorSettings, seed: int) -> None:
        self._settings = settings
        self._rng = np.random.default_rng((seed, 2**32 - 2))
        share_on = settings.on_s / (settings.on_s + settings.off_s)
        self._on = self._rng.random(settings.adapters) < share_on
        self._next_s = self._spells(self._on)
        self._steady = np.arange(settings.adapters) < settings.always_on
        self._factor = np.where(self._steady, 1.0, 1.0 / share_on)
        # A life ends in silence of the same mean length as the on/off process has, or a tenth of the life.
        self._dead_until_s = np.zeros(settings.adapters)
        self._dies_s = self._lives()

    def at(self, now_s: float) -> Floats:
        """Factor on each adapter's rate: 0 where it is silent. Call it with ascending times."""
        settings = self._settings
        if settings.off_s > 0:
            while (due := self._next_s <= now_s).any():
                self._on ^= due
                self._next_s = np.where(due, self._next_s + self._spells(self._on), self._next_s)
        if settings.lifetime_s > 0:
            dying = self._dies_s <= now_s
            pause_s = max(settings.off_s, settings.lifetime_s / 10)
            self._dead_until_s = np.where(dying, now_s + pause_s, self._dead_until_s)
            self._dies_s = np.where(dying, now_s + pause_s + self._lives(), self._dies_s)
        on = self._on | self._steady | (settings.off_s == 0)
        return np.asarray(np.where(on & (self._dead_until_s <= now_s), self._factor, 0.0))

    def _spells(self, on: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Floats:
        means = np.where(on, self._settings.on_s, max(self._settings.off_s, 1e-9))
        return np.asarray(self._rng.exponential(means))

    def _lives(self) -> Floats:
        if self._settings.lifetime_s <= 0:
            return np.full(self._settings.adapters, np.inf)
        return np.asarray(self._rng.exponential(self._settings.lifetime_s, self._settings.adapters))

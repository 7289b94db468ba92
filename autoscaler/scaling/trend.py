"""Where a group's load is going: a line through its last minutes, its highest of late, and the forecast; who is right.

The forecast knows hours and days, and needs them to learn from. The line knows ten minutes and nothing else. Tenants
that switch on and off within minutes step up faster than a replica starts: there what was reached of late comes again.
Each says what the load will be when a replica asked for now would serve; whoever was wrong by least is believed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

WINDOW_S = 600.0
SETTLES_S = 75.0  # a rate over a window of which only the end was scraped climbs by itself
LEAST_S = 120.0  # of samples, before a slope means anything
DAMPED = 0.75  # a rise slows down before it ends, and a line knows that half a window late
BAND = 1.28  # standard deviations of the samples around the line: nine of ten are below
JUMP = 2.0  # such deviations, by two ticks together: a burst, which a line follows too late
SLACK = 0.05  # of the load: what two ticks are off a smooth curve
QUANTILE = 0.95
"""Saying too little costs 19 times what saying as much too much does. On four recorded days .95 served with the fewest
replica-hours at 99 % in time: 925 where .9 took 936 and .98 took 946; the line alone 974, a fixed fleet 1,160."""
MOST_GROWTH = 1.5  # within one look ahead: the line through a fleet's first minutes may be any steep
SCORE_HALF_LIFE_S = 7_200.0
ENOUGH_SCORED = 20.0  # ticks
PEAK_S = 300.0


class Sayer(IntEnum):
    """Who foresees the load, as numbered in `LoadMemory.losses`."""

    FORECAST = 0
    LINE = 1
    MINUTES = 2
    HOUR = 3
    HOURS = 4


LOOK_BACK_S = {Sayer.MINUTES: 1_200.0, Sayer.HOUR: 3_600.0, Sayer.HOURS: 10_800.0}
TOLD = {
    Sayer.FORECAST: "upper band",
    Sayer.LINE: "the last minutes' trend",
    Sayer.MINUTES: "the highest of the last 20 minutes",
    Sayer.HOUR: "the highest of the last hour",
    Sayer.HOURS: "the highest of the last three hours",
}


@dataclass(frozen=True, slots=True)
class LoadMemory:
    """One group's load, tokens/s.

    Attributes:
        samples: (time, load) of the last ten minutes, oldest first.
        in_flight: (time, requests in engines) of the last window, oldest first; what they grew by has arrived and is in
            no rate yet.
        peaks: (begin, highest load) of each five minutes of the last three hours, oldest first.
        said: (when it would be, what each sayer says), not yet due.
        losses: mean pinball loss of each sayer, tokens/s; `scored`: ticks behind them, fading.
        since_s: the first look.
    """

    samples: tuple[tuple[float, float], ...] = ()
    in_flight: tuple[tuple[float, float], ...] = ()
    peaks: tuple[tuple[float, float], ...] = ()
    said: tuple[tuple[float, ...], ...] = ()
    losses: tuple[float, ...] = (0.0,) * len(Sayer)
    scored: float = 0.0
    since_s: float = 0.0

    @property
    def best(self) -> Sayer:
        """Whose word counts: the forecast where nothing was seen, the line until enough was judged."""
        if not self.samples:
            return Sayer.FORECAST
        if self.scored < ENOUGH_SCORED:
            return Sayer.LINE
        return min(Sayer, key=lambda sayer: self.losses[sayer])


def arrived(memory: LoadMemory, in_flight: float, now_s: float, window_s: float) -> tuple[LoadMemory, float]:
    """The memory with this tick's requests in flight, and how many a second they grew by over the rates' own window."""
    kept = tuple(row for row in memory.in_flight if now_s - 1.5 * window_s < row[0] < now_s)
    before = next((row for row in reversed(kept) if row[0] <= now_s - window_s), kept[0] if kept else None)
    grown = 0.0 if before is None else (in_flight - before[1]) / (now_s - before[0])
    return replace(memory, in_flight=(*kept, (now_s, in_flight))), grown


def seen(memory: LoadMemory, load: float, now_s: float) -> LoadMemory:
    """The memory with this tick's load, and with the sayings that are due judged by it.

    Until `SETTLES_S` after the first look only the latest load counts: a line would follow the window as it fills.
    """
    if memory.samples and now_s <= memory.samples[-1][0]:
        return memory
    elapsed_s = now_s - memory.samples[-1][0] if memory.samples else 0.0
    since_s = memory.since_s if memory.samples else now_s
    kept_from_s = now_s - (WINDOW_S if now_s - since_s >= SETTLES_S else 0.0)
    losses, scored = memory.losses, memory.scored * 0.5 ** (elapsed_s / SCORE_HALF_LIFE_S)
    for due in memory.said:
        if due[0] <= now_s:
            scored += 1.0
            losses = tuple(x + (_pinball(load, said) - x) / scored for x, said in zip(losses, due[1:], strict=True))
    return replace(
        memory,
        since_s=since_s,
        samples=(*(s for s in memory.samples if s[0] > kept_from_s), (now_s, load)),
        peaks=_peaks(memory.peaks, load, now_s),
        said=tuple(s for s in memory.said if s[0] > now_s),
        losses=losses,
        scored=scored,
    )


def _peaks(peaks: Iterable[tuple[float, float]], load: float, now_s: float) -> tuple[tuple[float, float], ...]:
    kept = [peak for peak in peaks if peak[0] > now_s - LOOK_BACK_S[Sayer.HOURS]]
    begin_s = now_s - now_s % PEAK_S
    if kept and kept[-1][0] == begin_s:
        return (*kept[:-1], (begin_s, max(kept[-1][1], load)))
    return (*kept, (begin_s, load))


def say(memory: LoadMemory, by_forecast: float, lead_s: float) -> LoadMemory:
    """The memory with what everybody says now of the load `lead_s` from now."""
    if not memory.samples:
        return memory
    at_s = memory.samples[-1][0] + lead_s
    if memory.said and memory.said[-1][0] >= at_s:
        return memory
    others = (foreseen(memory, sayer, lead_s) or 0.0 for sayer in Sayer if sayer is not Sayer.FORECAST)
    return replace(memory, said=(*memory.said, (at_s, by_forecast, *others)))


def foreseen(memory: LoadMemory, sayer: Sayer, ahead_s: float) -> float | None:
    """The load `ahead_s` from now by the line, or by what was reached of late; None without samples."""
    if sayer not in LOOK_BACK_S or not memory.samples:
        return upper(memory, ahead_s)
    since_s = memory.samples[-1][0] - LOOK_BACK_S[sayer]
    return max((load for begin_s, load in memory.peaks if begin_s + PEAK_S > since_s), default=memory.samples[-1][1])


def level(memory: LoadMemory) -> float | None:
    """The load now: the line's end, or the last two ticks where they jumped past it; None without samples."""
    if not memory.samples:
        return None
    latest = sum(load for _, load in memory.samples[-2:]) / len(memory.samples[-2:])
    if memory.samples[-1][0] - memory.samples[0][0] < LEAST_S:
        return latest
    end, _, spread = _line(memory)
    return latest if latest > (1.0 + SLACK) * end + JUMP * spread else end


def upper(memory: LoadMemory, ahead_s: float) -> float | None:
    """The load `ahead_s` from now, upper band: a rise goes on, a fall is not counted on. None without samples."""
    now = level(memory)
    if now is None or memory.samples[-1][0] - memory.samples[0][0] < LEAST_S:
        return now
    _, slope, spread = _line(memory)
    return now + DAMPED * max(slope, 0.0) * ahead_s + BAND * spread


def growth(memory: LoadMemory, ahead_s: float) -> float:
    """The load `ahead_s` from now, upper band, over what it is; after a fall the line's end is next to nothing."""
    now, ahead = level(memory), upper(memory, ahead_s)
    return min(ahead / now, MOST_GROWTH) if now and ahead else 1.0


def rises(memory: LoadMemory) -> bool:
    """Whether the load is above the mean of the last minutes: right after a fall a line may still point upwards."""
    return bool(memory.samples) and memory.samples[-1][1] > sum(x for _, x in memory.samples) / len(memory.samples)


def _line(memory: LoadMemory) -> tuple[float, float, float]:
    """Load at the last sample, slope per second, and standard deviation around the line."""
    at_s = np.array([t for t, _ in memory.samples])
    load = np.array([value for _, value in memory.samples])
    at_s -= at_s[-1]
    mean_s, mean = at_s.mean(), load.mean()
    slope = float(((at_s - mean_s) * (load - mean)).sum() / max(((at_s - mean_s) ** 2).sum(), 1e-9))
    end = float(mean - slope * mean_s)
    around = load - (end + slope * at_s)
    return end, slope, float(np.sqrt((around**2).mean()))


def _pinball(load: float, said: float) -> float:
    return QUANTILE * (load - said) if load > said else (1.0 - QUANTILE) * (said - load)

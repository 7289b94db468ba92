"""What a replica would carry at its largest batch, told from the batches that it was seen with.

By Little's law the running requests are the tokens/s times how long a token takes, and an engine's step gets longer in
proportion to its batch: `running / tokens_per_s = fixed + growth x running`. Two loads that differ tell both terms,
long before anything is near a target. Worked numbers: 20 running at 5,000 tokens/s and 60 at 9,000 are 4.0 and 6.7 ms;
so growth is .067 ms, fixed 2.7 ms, and 256 running requests would carry 256 / (2.7 + 17.1) ms = 12,960 tokens/s.

Loads are told apart by tokens/s, an average over a window; running requests, a gauge with much noise, are averaged
within each level. The other way round their noise would pass for growth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

OCTAVE_PARTS = 4  # levels of load are a fifth apart
MOST_TICKS = 40.0  # of weight a level has: at 15 s a tick it follows a change within ten minutes
MOST_LATE_TICKS = 160.0  # of who was late there: an objective is of hours
KNOWN_TICKS = 3.0
REMEMBERED_TICKS = 4.0  # that a known level keeps when the group has another size
HALF_LIFE_S = 21_600.0  # of what is not seen again
SPAN = 1.6  # the largest batch seen over the smallest: nearer together the two terms cannot be told apart
FURTHEST = 2.5  # times the highest load seen: further out the line was never tried
FEW_RUNNING = 1.0
NOISE = 0.1  # of running requests over a group, as gauges show them in one tick


@dataclass(frozen=True, slots=True)
class Level:
    """Means of one replica at about one load; `ticks`: how much is behind them, at most `MOST_TICKS`.

    `late_ratio`: share of first tokens that were late, with `late_ticks` of its own: not every tick tells it.
    """

    octave: int
    ticks: float
    running: float
    tokens_per_s: float
    late_ratio: float = 0.0
    late_ticks: float = 0.0

    def times(self, ratio: float, least: float = 0.0) -> Level:
        """The same with less behind it; where `ticks` were that many, at least `least` stay."""
        ticks, late = (max(n * ratio, min(n, least)) for n in (self.ticks, self.late_ticks))
        return replace(self, ticks=ticks, late_ticks=late)


Levels = tuple[Level, ...]


def seen_at(levels: Levels, running: float, tokens_per_s: float, elapsed_s: float, late: float | None = None) -> Levels:
    """The levels after one more tick of a group's mean replica; `late` is None where the tick does not tell it.

    The mean, since one replica's window may be full by chance: such a one has a high rate in an ordinary batch.
    """
    fade = 0.5 ** (max(elapsed_s, 0.0) / HALF_LIFE_S)
    kept = {level.octave: level.times(fade) for level in levels if level.ticks * fade > 0.1}
    if running >= FEW_RUNNING and tokens_per_s > 0:
        octave = math.floor(OCTAVE_PARTS * math.log2(tokens_per_s))
        old = kept.get(octave, Level(octave, 0.0, running, tokens_per_s))
        ticks = min(old.ticks + 1.0, MOST_TICKS)
        new = replace(
            old,
            ticks=ticks,
            running=old.running + (running - old.running) / ticks,
            tokens_per_s=old.tokens_per_s + (tokens_per_s - old.tokens_per_s) / ticks,
        )
        if late is not None:
            told = min(old.late_ticks + 1.0, MOST_LATE_TICKS)
            new = replace(new, late_ratio=old.late_ratio + (late - old.late_ratio) / told, late_ticks=told)
        kept[octave] = new
    return tuple(kept[octave] for octave in sorted(kept))


def resized(levels: Levels, before: int, after: int) -> Levels:
    """The levels when the group has another size: each replica serves other adapters, so what was seen counts less."""
    if before <= 0 or after <= 0 or before == after:
        return levels
    share = (min(before, after) / max(before, after)) ** 2
    return tuple(level.times(share, REMEMBERED_TICKS) for level in levels)


def carried(levels: Levels, most_running: float) -> float | None:
    """Tokens/s at a batch of `most_running`; None while loads have not differed enough to tell.

    Cautious: the line is taken one standard error steeper than it looks, and followed at most to `FURTHEST` times what
    was seen, since overhead that grows with the adapters in a batch bends it.
    """
    known = [level for level in levels if level.ticks >= KNOWN_TICKS]
    if len(known) < 2:
        return None
    running = np.array([level.running for level in known])
    if running.max() < SPAN * running.min():
        return None
    seconds = running / np.array([level.tokens_per_s for level in known])
    ticks = np.array([level.ticks for level in known])
    weight = ticks * running
    weight /= weight.sum()
    mean_running, mean_seconds = float(weight @ running), float(weight @ seconds)
    spread = float(weight @ (running - mean_running) ** 2)
    growth = max(float(weight @ ((running - mean_running) * (seconds - mean_seconds))) / spread, 0.0)
    doubt = NOISE * float(np.sqrt((weight**2 * (running - mean_running) ** 2 * seconds**2 / ticks).sum())) / spread
    most = FURTHEST * max(level.tokens_per_s for level in known)
    each = max(mean_seconds + (growth + doubt) * (most_running - mean_running), 0.0)
    return most if each <= 0 else min(most, most_running / each)

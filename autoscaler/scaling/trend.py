"""Where a group's load is going: a line through its last minutes, and how well that has foreseen against the forecast.

The forecast knows hours and days, and needs them to learn from. The line knows ten minutes and nothing else. Both say
what the load will be when a replica asked for now would serve; whoever was wrong by less until now is believed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

WINDOW_S = 600.0
LEAST_S = 120.0  # of samples, before a slope means anything
DAMPED = 0.75  # a rise slows down before it ends, and a line knows that half a window late
BAND = 1.28  # standard deviations of the samples around the line: nine of ten are below
JUMP = 2.0  # such deviations, by two ticks together: a burst, which a line follows too late
SLACK = 0.05  # of the load: what two ticks are off a smooth curve
QUANTILE = 0.9
MOST_GROWTH = 1.5  # within one look ahead: the line through a fleet's first minutes may be any steep
SCORE_HALF_LIFE_S = 7_200.0
ENOUGH_SCORED = 20.0  # ticks


@dataclass(frozen=True, slots=True)
class LoadMemory:
    """One group's load, tokens/s.

    Attributes:
        samples: (time, load) of the last ten minutes, oldest first.
        in_flight: (time, requests in engines) of the last window, oldest first; what they grew by has arrived and is in
            no rate yet.
        said: (when it would be, by the line, by the forecast), not yet due.
        line_loss, forecast_loss: mean pinball loss at .9 of each, tokens/s; `scored`: ticks behind them, fading.
    """

    samples: tuple[tuple[float, float], ...] = ()
    in_flight: tuple[tuple[float, float], ...] = ()
    said: tuple[tuple[float, float, float], ...] = ()
    line_loss: float = 0.0
    forecast_loss: float = 0.0
    scored: float = 0.0

    @property
    def forecast_serves(self) -> bool:
        """Whether the forecast was seen to be the better of the two, or the only one."""
        if not self.samples:
            return True
        return self.scored >= ENOUGH_SCORED and self.forecast_loss <= self.line_loss


def arrived(memory: LoadMemory, in_flight: float, now_s: float, window_s: float) -> tuple[LoadMemory, float]:
    """The memory with this tick's requests in flight, and how many a second they grew by over the rates' own window."""
    kept = tuple(row for row in memory.in_flight if now_s - 1.5 * window_s < row[0] < now_s)
    before = next((row for row in reversed(kept) if row[0] <= now_s - window_s), kept[0] if kept else None)
    grown = 0.0 if before is None else (in_flight - before[1]) / (now_s - before[0])
    return replace(memory, in_flight=(*kept, (now_s, in_flight))), grown


def seen(memory: LoadMemory, load: float, now_s: float) -> LoadMemory:
    """The memory with this tick's load, and with the sayings that are due judged by it."""
    if memory.samples and now_s <= memory.samples[-1][0]:
        return memory
    elapsed_s = now_s - memory.samples[-1][0] if memory.samples else 0.0
    due = [s for s in memory.said if s[0] <= now_s]
    line_loss, forecast_loss = memory.line_loss, memory.forecast_loss
    scored = memory.scored * 0.5 ** (elapsed_s / SCORE_HALF_LIFE_S)
    for _, by_line, by_forecast in due:
        scored += 1.0
        line_loss += (_pinball(load, by_line) - line_loss) / scored
        forecast_loss += (_pinball(load, by_forecast) - forecast_loss) / scored
    kept = tuple(s for s in memory.samples if s[0] > now_s - WINDOW_S)
    said = tuple(s for s in memory.said if s[0] > now_s)
    return LoadMemory((*kept, (now_s, load)), memory.in_flight, said, line_loss, forecast_loss, scored)


def say(memory: LoadMemory, by_forecast: float, lead_s: float) -> LoadMemory:
    """The memory with what the line and the forecast say now of the load `lead_s` from now."""
    by_line = upper(memory, lead_s)
    if by_line is None:
        return memory
    at_s = memory.samples[-1][0] + lead_s
    if memory.said and memory.said[-1][0] >= at_s:
        return memory
    return replace(memory, said=(*memory.said, (at_s, by_line, by_forecast)))


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

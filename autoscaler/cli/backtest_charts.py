"""Charts of a backtest as inline SVG: no script, nothing to load, readable in light and dark and without colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise

import numpy as np

WIDTH, MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, MARGIN_BOTTOM = 960, 56, 16, 14, 30
MOST_POINTS = 640
Values = Sequence[float | None]


def svg(height: int, parts: Sequence[str], title: str, width: int = WIDTH) -> str:
    """The parts in a frame of its own size, with a title for those who cannot see it."""
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        + "".join(parts)
        + "</svg>"
    )


class Plane:
    """A pair of axes: numbers to places, grid and labels."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], height: int, width: int = WIDTH) -> None:
        self.x0, self.x1 = x
        self.y0, self.y1 = y[0], y[1] if y[1] > y[0] else y[0] + 1.0
        self.height, self.width = height, width

    def px(self, x: float) -> float:
        """Horizontal place."""
        inner = self.width - MARGIN_LEFT - MARGIN_RIGHT
        return MARGIN_LEFT + inner * (x - self.x0) / max(self.x1 - self.x0, 1e-12)

    def py(self, y: float) -> float:
        """Vertical place."""
        inner = self.height - MARGIN_TOP - MARGIN_BOTTOM
        return self.height - MARGIN_BOTTOM - inner * (y - self.y0) / (self.y1 - self.y0)

    def grid(self, percent: bool = False) -> str:
        """Horizontal lines at round numbers, each with its number."""
        out = []
        for value in ticks(self.y0, self.y1):
            y = self.py(value)
            text = f"{value:.0%}" if percent else f"{value:g}"
            out.append(
                f'<line class="grid" x1="{MARGIN_LEFT}" x2="{self.width - MARGIN_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text class="tick" x="{MARGIN_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
            )
        return "".join(out)

    def times(self) -> str:
        """Days below the plane, or hours where there are few days."""
        unit = 86400.0 if self.x1 - self.x0 > 2.5 * 86400 else 3600.0
        step = max(1, math.ceil((self.x1 - self.x0) / unit / 8)) * unit
        out, at = [], math.ceil(self.x0 / step) * step
        while at <= self.x1:
            x = self.px(at)
            out.append(
                f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{MARGIN_TOP}" y2="{self.height - MARGIN_BOTTOM}"/>'
                f'<text class="tick" x="{x:.1f}" y="{self.height - 10}" text-anchor="middle">{_moment(at, unit)}</text>'
            )
            at += step
        return "".join(out)

    def line(self, xs: Sequence[float], ys: Values, css: str, step: bool = False) -> str:
        """A line that breaks where a value is unknown."""
        path, pen, before = [], "M", 0.0
        for x, y in zip(xs, ys, strict=True):
            if y is None:
                pen = "M"
                continue
            if step and pen == "L":
                path.append(f"L{self.px(x):.1f} {self.py(before):.1f}")
            path.append(f"{pen}{self.px(x):.1f} {self.py(y):.1f}")
            pen, before = "L", y
        return f'<path class="{css}" d="{"".join(path)}"/>'

    def area(self, xs: Sequence[float], low: Values, high: Values, css: str) -> str:
        """Filled between two rows of values, where both are known."""
        known = [(x, a, b) for x, a, b in zip(xs, low, high, strict=True) if a is not None and b is not None]
        if not known:
            return ""
        there = "L".join(f"{self.px(x):.1f} {self.py(b):.1f}" for x, _, b in known)
        back = "L".join(f"{self.px(x):.1f} {self.py(a):.1f}" for x, a, _ in reversed(known))
        return f'<path class="{css}" d="M{there}L{back}Z"/>'


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers within the bounds."""
    span = max(high - low, 1e-12)
    step = 10 ** math.floor(math.log10(span / 4))
    step *= next(m for m in (1, 2, 2.5, 5, 10) if span / (step * m) <= 5)
    first = math.ceil(low / step - 1e-9)
    return [round(step * i, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def thinned(xs: Sequence[float], *columns: Values) -> tuple[list[float], list[list[float | None]]]:
    """At most `MOST_POINTS` points, each the mean of as many neighbours; unknown where all of them are."""
    every = -(-len(xs) // MOST_POINTS)
    starts = range(0, len(xs), every)
    out = [[_mean([v for v in column[i : i + every] if v is not None]) for i in starts] for column in columns]
    return [xs[min(i + every, len(xs)) - 1] for i in starts], out


def rate_chart(ends_s: Sequence[float], actual: Values, mean: Values, upper: Values) -> str:
    """The fleet's rate with what was said of it."""
    xs, (came, said, high) = thinned(ends_s, actual, mean, upper)
    most = max((v for column in (came, high) for v in column if v is not None), default=1.0)
    plane = Plane((xs[0], xs[-1]), (0.0, most * 1.05), 300)
    parts = [
        plane.grid(), plane.times(), plane.area(xs, said, high, "band"), plane.line(xs, said, "said"),
        plane.line(xs, came, "came"),
    ]  # fmt: skip
    return svg(300, parts, "Requests per second of the fleet, and the forecast with its 90 % band")


def coverage_chart(days: Sequence[dict[str, float | None]], horizons: Sequence[str]) -> str:
    """Share of windows inside the 90 % bands, day by day."""
    xs = [float(d["day"] or 0) for d in days]
    xs = [x - xs[0] + 1 for x in xs]
    lows = [v for d in days for h in horizons if (v := d[h]) is not None]
    plane = Plane((xs[0], max(xs[-1], xs[0] + 1)), (min([*lows, 0.8]) - 0.02, 1.0), 240)
    band = plane.area([plane.x0, plane.x1], [0.88, 0.88], [0.92, 0.92], "target")
    parts = [plane.grid(percent=True), band]
    for i, h in enumerate(horizons):
        parts.append(plane.line(xs, [d[h] for d in days], f"line l{i % 4}"))
        parts += [
            f'<circle class="dot l{i % 4}" cx="{plane.px(x):.1f}" cy="{plane.py(v):.1f}" r="3.5">'
            f"<title>day {x:g}, {float(h) / 60:g} min: {v:.1%}</title></circle>"
            for x, d in zip(xs, days, strict=True)
            if (v := d[h]) is not None
        ]
    parts += [
        f'<text class="tick" x="{plane.px(x):.1f}" y="230" text-anchor="middle">day {x:g}</text>'
        for x in xs[:: max(1, len(xs) // 10)]
    ]
    return svg(240, parts, "Coverage of the 90 % bands by day, target 88 to 92 %")


def calibration_chart(calibration: dict[str, dict[str, dict[str, float | None]]]) -> str:
    """What share came at or below each quantile, for every horizon: on the diagonal, a band says what it means."""
    each, parts = WIDTH / max(len(calibration), 1), []
    for i, (horizon, pools) in enumerate(calibration.items()):
        plane = Plane((0.4, 1.0), (0.4, 1.0), 300, round(each))
        inner = [plane.grid(percent=True), plane.line([0.4, 1.0], [0.4, 1.0], "diagonal")]
        for j, (pool, levels) in enumerate(pools.items()):
            known = [(float(q), v) for q, v in levels.items() if v is not None]
            inner.append(plane.line([q for q, _ in known], [max(v, 0.4) for _, v in known], f"line l{j % 4}"))
            inner += [
                f'<circle class="dot l{j % 4}" cx="{plane.px(q):.1f}" cy="{plane.py(max(v, 0.4)):.1f}" r="4">'
                f"<title>{pool}, {float(horizon) / 60:g} min: {v:.1%} came at or below the {q:.0%} quantile</title>"
                "</circle>"
                for q, v in known
            ]
        inner += [
            f'<text class="tick" x="{plane.px(q):.1f}" y="290" text-anchor="middle">{q:.0%}</text>'
            for q in (0.5, 0.9, 0.95)
        ]
        inner.append(
            f'<text class="head" x="{each / 2:.0f}" y="12" text-anchor="middle">{float(horizon) / 60:g} min</text>'
        )
        parts.append(f'<g transform="translate({i * each:.0f} 0)">{"".join(inner)}</g>')
    return svg(300, parts, "Calibration: quantile said against share that came at or below it")


def error_chart(methods: dict[str, dict[str, dict[str, dict[str, float | None]]]]) -> str:
    """WAPE by horizon and pool, beside the last value's."""
    served, last = methods["served"], methods["last_value"]
    places = [(h, p) for h in served for p in served[h]]
    pairs = [(served[h][p]["wape"], last[h][p]["wape"]) for h, p in places]
    most = max((v for pair in pairs for v in pair if v is not None), default=1.0)
    plane = Plane((0, len(places)), (0.0, min(most * 1.08, 2.0)), 280)
    parts = [plane.grid()]
    for i, ((h, p), pair) in enumerate(zip(places, pairs, strict=True)):
        for j, (value, who) in enumerate(zip(pair, ("served", "last value"), strict=True)):
            if value is None:
                continue
            x, wide = plane.px(i + 0.14 + 0.36 * j), plane.px(0.34) - plane.px(0)
            top = plane.py(min(value, plane.y1))
            parts.append(
                f'<rect class="bar b{j}" x="{x:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{plane.py(0) - top:.1f}" '
                f'rx="2"><title>{p}, {float(h) / 60:g} min, {who}: {value:.3f}</title></rect>'
            )
        middle = plane.px(i + 0.5)
        parts.append(f'<text class="tick" x="{middle:.1f}" y="264" text-anchor="middle">{p}</text>')
        if p == "all":
            parts.append(
                f'<text class="head" x="{plane.px(i + 2):.1f}" y="12" text-anchor="middle">{float(h) / 60:g} min</text>'
            )
    return svg(280, parts, "Weighted absolute error by horizon and pool, served and last value")


def tier_chart(ends_s: Sequence[float], counts: Sequence[dict[str, int]]) -> str:
    """How many tenants each tier had."""
    columns: list[list[float | None]] = [[float(c.get(t, 0)) for c in counts] for t in ("hot", "warm", "cold")]
    xs, (hot, warm, cold) = thinned(ends_s, *columns)
    total = max((sum(v or 0.0 for v in row) for row in zip(hot, warm, cold, strict=True)), default=1.0)
    plane = Plane((xs[0], xs[-1]), (0.0, total), 220)
    low: list[float | None] = [0.0] * len(xs)
    parts = [plane.grid(), plane.times()]
    for css, column in (("hot", hot), ("warm", warm), ("cold", cold)):
        high: list[float | None] = [(a or 0.0) + (b or 0.0) for a, b in zip(low, column, strict=True)]
        parts.append(plane.area(xs, low, high, f"tier {css}"))
        low = high
    return svg(220, parts, "Tenants by tier over time: hot below, warm, cold above")


def strip_chart(ends_s: Sequence[float], tenants: Sequence[str], tiers: Sequence[Sequence[int]]) -> str:
    """The tier of each of the largest tenants, as a strip each."""
    row_px, left = 18, 150
    width = (WIDTH - left - MARGIN_RIGHT) / max(len(ends_s), 1)
    parts, codes = [], np.asarray(tiers, np.int64).reshape(len(ends_s), len(tenants))
    for i, tenant in enumerate(tenants):
        y = i * row_px + 4
        name = tenant if len(tenant) <= 22 else f"{tenant[:21]}…"
        parts.append(f'<text class="tick" x="{left - 8}" y="{y + 11}" text-anchor="end">{escape(name)}</text>')
        edges = [0, *(np.flatnonzero(np.diff(codes[:, i])) + 1).tolist(), len(ends_s)]
        for a, b in pairwise(edges):
            tier = ("cold", "warm", "hot")[max(int(codes[a, i]), 0)]
            said = f"{escape(tenant)}: {tier} for {b - a} buckets"
            parts.append(
                f'<rect class="tier {tier}" x="{left + a * width:.1f}" y="{y}" width="{(b - a) * width:.1f}" '
                f'height="{row_px - 5}"><title>{said}</title></rect>'
            )
    return svg(len(tenants) * row_px + 8, parts, "Tiers of the largest tenants over time")


def replica_chart(ends_s: Sequence[float], replicas: Sequence[int], needed: Sequence[float]) -> str:
    """Replicas that were decided, and what the demand that came would have filled."""
    xs, (count, need) = thinned(ends_s, [float(n) for n in replicas], [float(n) for n in needed])
    most = max((v for column in (count, need) for v in column if v is not None), default=1.0)
    plane = Plane((xs[0], xs[-1]), (0.0, most * 1.1), 220)
    parts = [plane.grid(), plane.times(), plane.line(xs, need, "came"), plane.line(xs, count, "said step", step=True)]
    return svg(220, parts, "Replicas decided, and replicas that the demand that came fills")


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _moment(at_s: float, unit_s: float) -> str:
    """A date or an hour (UTC); the number of the day where the recording's clock starts at 0."""
    if unit_s < 86400:
        return f"{datetime.fromtimestamp(at_s, UTC):%H:%M}"
    return f"day {at_s / 86400:.0f}" if at_s < 365 * 86400 else f"{datetime.fromtimestamp(at_s, UTC):%d %b}"

"""Charts of a simulation as inline SVG: no script, no font, no file beside the page. Colours are CSS variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 12, 12, 24


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: values over the common times, NaN where there is none. `step`: it jumps, as counts do."""

    name: str
    values: Sequence[float]
    colour: str
    step: bool = False
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which something was so; of no length where it happened at once."""

    name: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Dot:
    """One point of a scatter."""

    name: str
    x: float
    y: float
    colour: str
    full: bool


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, max(value, self._least)))
        return self.start + (min(value, high) - low) / ((high - low) or 1.0) * (self.end - self.start)

    @property
    def _least(self) -> float:
        return self.low

    def ticks(self) -> list[float]:
        """Round values within."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            return [10.0**e for e in range(first, last + 1) if self.low <= 10.0**e <= self.high]
        span = (self.high - self.low) or 1.0
        raw = span / 4
        unit = 10.0 ** math.floor(math.log10(raw))
        step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw)
        first = math.ceil(self.low / step)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def lines(
    at_s: Sequence[float], curves: Sequence[Line], label: str, *, log: bool = False, mark: float = 0.0,
    spans: Sequence[Span] = (),
) -> str:  # fmt: skip
    """Curves over hours; `mark`: a level worth a line of its own; `spans`: times that are shaded."""
    known = [v for c in curves for v in c.values if math.isfinite(v)] or [1.0]
    high = max(*known, mark) * 1.08 or 1.0
    low = max(min(known), 1e-3) * 0.9 if log else 0.0
    x = _Axis(at_s[0] / 3600, max(at_s[-1] / 3600, at_s[0] / 3600 + 1e-6), _LEFT, WIDTH - _RIGHT)
    y = _Axis(low, max(high, low * 1.5), HEIGHT - _BOTTOM, _TOP, log)
    parts = [_grid(x, y, label)]
    for span in spans:
        left, right = x.at(span.begin_s / 3600), x.at(span.end_s / 3600)
        kind = "span" if span.end_s > span.begin_s else "instant"
        parts.append(
            f'<rect class="{kind}" x="{left:.1f}" y="{_TOP}" width="{max(2.0, right - left):.1f}" '
            f'height="{HEIGHT - _BOTTOM - _TOP}"><title>{escape(span.name)}</title></rect>'
        )
    if mark:
        parts.append(
            f'<line class="mark" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y.at(mark):.1f}" y2="{y.at(mark):.1f}"/>'
        )
    for curve in curves:
        dash = ' stroke-dasharray="4 4"' if curve.dashed else ""
        path = _path(at_s, curve, x, y)
        parts.append(
            f'<path d="{path}" style="stroke:var({curve.colour})"{dash}><title>{escape(curve.name)}</title></path>'
        )
    return _svg("".join(parts), label) + _legend(curves)


def scatter(dots: Sequence[Dot], x_label: str, y_label: str, mark: float) -> str:
    """GPU-hours to the right, latency upwards (log); hollow dots missed the objective."""
    xs, ys = [d.x for d in dots], [d.y for d in dots if math.isfinite(d.y)] or [1.0]
    x = _Axis(0.0, max(xs) * 1.15 or 1.0, _LEFT, WIDTH - 120)
    y = _Axis(max(min(*ys, mark) * 0.6, 1e-3), max(*ys, mark) * 1.8, HEIGHT + 60 - _BOTTOM, _TOP, log=True)
    parts = [_grid(x, y, y_label, HEIGHT + 60)]
    parts.append(f'<line class="mark" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y.at(mark):.1f}" y2="{y.at(mark):.1f}"/>')
    taken: list[tuple[float, float]] = []
    for dot in sorted(dots, key=lambda d: d.x):
        if not math.isfinite(dot.y):
            continue
        px, py = x.at(dot.x), y.at(dot.y)
        ty = py + 4
        while any(abs(ty - b) < 12 and abs(px - a) < 150 for a, b in taken):
            ty += 12
        taken.append((px, ty))
        fill = f"fill:var({dot.colour})" if dot.full else f"fill:none;stroke:var({dot.colour})"
        parts.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="6" style="{fill};stroke-width:2"/>')
        parts.append(f'<text x="{px + 11:.1f}" y="{ty:.1f}">{escape(dot.name)}</text>')
    parts.append(
        f'<text class="axis" x="{WIDTH - _RIGHT}" y="{HEIGHT + 56}" text-anchor="end">{escape(x_label)}</text>'
    )
    return _svg("".join(parts), y_label, HEIGHT + 60)


def bars(at_s: Sequence[float], values: Sequence[float], label: str, colour: str) -> str:
    """One bar an interval."""
    x = _Axis(at_s[0] / 3600, max(at_s[-1] / 3600, at_s[0] / 3600 + 1e-6), _LEFT, WIDTH - _RIGHT)
    y = _Axis(0.0, max(max(values, default=0) * 1.08, 1.0), HEIGHT // 2 - _BOTTOM, _TOP)
    wide = max(1.0, (WIDTH - _LEFT - _RIGHT) / max(1, len(values)) - 1)
    boxes = "".join(
        f'<rect x="{x.at(t / 3600) - wide:.1f}" y="{y.at(v):.1f}" width="{wide:.1f}" '
        f'height="{max(0.0, HEIGHT // 2 - _BOTTOM - y.at(v)):.1f}" style="fill:var({colour})"/>'
        for t, v in zip(at_s, values, strict=True)
        if v
    )
    return _svg(_grid(x, y, label, HEIGHT // 2) + boxes, label, HEIGHT // 2)


def stacked(at_s: Sequence[float], layers: Sequence[Line], label: str) -> str:
    """Layers on top of each other."""
    base = [0.0] * len(at_s)
    tops = []
    for layer in layers:
        base = [b + v for b, v in zip(base, layer.values, strict=True)]
        tops.append(base)
    x = _Axis(at_s[0] / 3600, max(at_s[-1] / 3600, at_s[0] / 3600 + 1e-6), _LEFT, WIDTH - _RIGHT)
    y = _Axis(0.0, max(base, default=1.0) * 1.05 or 1.0, HEIGHT - _BOTTOM, _TOP)
    parts = [_grid(x, y, label)]
    below = [0.0] * len(at_s)
    for layer, top in zip(layers, tops, strict=True):
        up = " ".join(f"{x.at(t / 3600):.1f},{y.at(v):.1f}" for t, v in zip(at_s, top, strict=True))
        back = [(t, v) for t, v in zip(at_s, below, strict=True)][::-1]
        down = " ".join(f"{x.at(t / 3600):.1f},{y.at(v):.1f}" for t, v in back)
        parts.append(f'<polygon points="{up} {down}" style="fill:var({layer.colour});fill-opacity:.75"/>')
        below = top
    return _svg("".join(parts), label) + _legend(layers)


def heat(
    tenants: Sequence[str], at_s: Sequence[float], table: Sequence[Sequence[float | None]], target_s: float
) -> str:
    """Tenants downwards, time to the right; from calm to three times the target, empty without requests."""
    row, left = 15, 130
    wide = (WIDTH - left - _RIGHT) / max(1, len(at_s))
    height = row * len(tenants) + 22
    cells = [
        f'<rect x="{left + j * wide:.1f}" y="{i * row}" width="{wide + 0.3:.1f}" height="{row - 1}" '
        f'style="fill:{_warmth(value, target_s)}">'
        f"<title>{escape(tenant)}, {at_s[j] / 3600:.2f} h: {value:.3f} s</title></rect>"
        for i, tenant in enumerate(tenants)
        for j, value in enumerate(table[i])
        if value is not None
    ]
    names = [
        f'<text x="{left - 8}" y="{i * row + 11}" text-anchor="end">{escape(tenant[:18])}</text>'
        for i, tenant in enumerate(tenants)
    ]
    marks = [
        f'<text class="axis" x="{left + (WIDTH - left - _RIGHT) * s:.0f}" y="{height - 6}" text-anchor="middle">'
        f"{at_s[-1] * s / 3600:.1f} h</text>"
        for s in (0.0, 0.5, 1.0)
        if at_s
    ]
    return _svg("".join([*cells, *names, *marks]), "p99 by tenant", height)


def _warmth(value: float, target_s: float) -> str:
    """Teal when calm, amber at the target, red at three times of it."""
    share = max(0.0, min(1.0, math.log10(max(value, 1e-3) / target_s * 10) / math.log10(30)))
    hue = 172 - 172 * share
    return f"hsl({hue:.0f} {55 + 20 * share:.0f}% {62 - 10 * share:.0f}%)"


def _path(at_s: Sequence[float], curve: Line, x: _Axis, y: _Axis) -> str:
    path, pen, before = [], False, 0.0
    for t, value in zip(at_s, curve.values, strict=True):
        if not math.isfinite(value):
            pen = False
            continue
        px, py = x.at(t / 3600), y.at(value)
        if pen and curve.step:
            path.append(f"L{px:.1f},{before:.1f}")
        path.append(f"{'L' if pen else 'M'}{px:.1f},{py:.1f}")
        pen, before = True, py
    return "".join(path)


def _grid(x: _Axis, y: _Axis, label: str, height: int = HEIGHT) -> str:
    rows = "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y.at(v):.1f}" y2="{y.at(v):.1f}"/>'
        f'<text class="axis" x="{_LEFT - 6}" y="{y.at(v) + 4:.1f}" text-anchor="end">{v:g}</text>'
        for v in y.ticks()
    )
    columns = "".join(
        f'<text class="axis" x="{x.at(v):.1f}" y="{height - 8}" text-anchor="middle">{v:g}</text>' for v in x.ticks()
    )
    return rows + columns + f'<text class="axis" x="{_LEFT}" y="{_TOP - 2}">{escape(label)}</text>'


def _svg(body: str, label: str, height: int = HEIGHT) -> str:
    return f'<svg viewBox="0 -8 {WIDTH} {height + 8}" role="img" aria-label="{escape(label)}">{body}</svg>'


def _legend(curves: Sequence[Line]) -> str:
    items = "".join(f'<span><i style="background:var({c.colour})"></i>{escape(c.name)}</span>' for c in curves)
    return f'<p class="legend">{items}</p>'

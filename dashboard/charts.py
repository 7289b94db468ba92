"""Charts: lines over time, bands, bars, heat maps. Colours after Okabe and Ito; heat maps in one hue."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, TypeAlias

import altair as alt
import pandas as pd
import streamlit as st

from dashboard.api import Json
from dashboard.scene import let_paint

Chart: TypeAlias = alt.Chart | alt.LayerChart | alt.FacetChart

BLUE, ORANGE, GREEN, PINK = "#2b8cc4", "#E69F00", "#009E73", "#CC79A7"
GREY = "#8a949e"
_AXIS: dict[str, Any] = {"labelLimit": 160, "titleFontWeight": "normal", "grid": True}
_CELLS: dict[str, Any] = _AXIS | {"grid": False, "ticks": False, "domain": False}


def show(chart: Chart, key: str, says: str, height: int | None = None) -> None:
    """Draw a chart, after the first paint; `says` is what a screen reader reads."""
    let_paint()
    if height is not None:
        chart = chart.properties(height=height)
    st.altair_chart(chart.configure_view(stroke=None), width="stretch", key=key, alt=says)


def local(times: Sequence[datetime.datetime], tz: datetime.tzinfo) -> list[datetime.datetime]:
    """Times on the viewer's clock, without a zone: the chart would turn them into the browser's again."""
    return [t.astimezone(tz).replace(tzinfo=None) for t in times]


def lines(
    samples: Sequence[Json], columns: dict[str, str], tz: datetime.tzinfo, unit: str, limit: tuple[float, str] | None
) -> Chart:
    """Columns of the history over time, by their labels; `limit` is a dashed line with its name."""
    frame = pd.DataFrame(
        {
            "at": local([s["at"] for s in samples], tz),
            **{label: [s[c] for s in samples] for c, label in columns.items()},
        }
    ).melt("at", var_name="what", value_name="value")
    colours = [BLUE, ORANGE, GREEN, PINK][: len(columns)]
    base = alt.Chart(frame).mark_line(interpolate="monotone", strokeWidth=2).encode(
        x=alt.X("at:T", title=None, axis=alt.Axis(format="%H:%M:%S", tickCount=5, **_AXIS)),
        y=alt.Y("value:Q", title=unit, axis=alt.Axis(tickCount=5, **_AXIS), scale=alt.Scale(zero=True)),
        color=alt.Color(
            "what:N",
            title=None,
            sort=list(columns.values()),
            scale=alt.Scale(domain=list(columns.values()), range=colours),
            legend=alt.Legend(orient="top", columns=2) if len(columns) > 1 else None,
        ),
        strokeDash=alt.StrokeDash("what:N", sort=list(columns.values()), legend=None),
        tooltip=[alt.Tooltip("at:T", format="%H:%M:%S", title="at"), "what:N", alt.Tooltip("value:Q", format=".3~s")],
    )  # fmt: skip
    layers: list[alt.Chart] = [base]
    if limit is not None:
        mark = pd.DataFrame({"value": [limit[0]], "name": [limit[1]]})
        layers.append(alt.Chart(mark).mark_rule(strokeDash=[5, 4], color=GREY, strokeWidth=1.5).encode(y="value:Q"))
        layers.append(
            alt.Chart(mark)
            .mark_text(align="left", baseline="bottom", dx=4, dy=-2, color=GREY)
            .encode(y="value:Q", x=alt.value(0), text="name:N")
        )
    return alt.layer(*layers)


def band(forecast: Sequence[Json], now: float | None) -> Chart:
    """A tenant's forecast: mean and the band from p50 to p90 over horizons, and what it asks for now."""
    points = sorted(forecast, key=lambda f: f["horizon_s"])
    frame = pd.DataFrame(
        {
            "horizon_s": [f["horizon_s"] for f in points],
            "mean": [f["mean_tokens_per_s"] for f in points],
            "low": [f["p50_tokens_per_s"] for f in points],
            "high": [f["p90_tokens_per_s"] for f in points],
        }
    )
    x = alt.X("horizon_s:Q", title="seconds ahead", axis=alt.Axis(tickCount=6, **_AXIS), scale=alt.Scale(zero=True))
    tips = [
        alt.Tooltip("horizon_s:Q", title="seconds ahead"),
        alt.Tooltip("mean:Q", format=".3~s"),
        alt.Tooltip("low:Q", format=".3~s", title="p50"),
        alt.Tooltip("high:Q", format=".3~s", title="p90"),
    ]
    area = (
        alt.Chart(frame)
        .mark_area(opacity=0.25, color=BLUE)
        .encode(x=x, y=alt.Y("low:Q", title="tokens/s", axis=alt.Axis(tickCount=5, format="~s", **_AXIS)), y2="high:Q")
    )
    mean = alt.Chart(frame).mark_line(color=BLUE, point=True, strokeWidth=2).encode(x=x, y="mean:Q", tooltip=tips)
    upper = alt.Chart(frame).mark_line(color=BLUE, strokeDash=[4, 3]).encode(x=x, y="high:Q", tooltip=tips)
    layers = [area, upper, mean]
    if now is not None:
        here = pd.DataFrame({"horizon_s": [0.0], "now": [now]})
        layers.append(
            alt.Chart(here)
            .mark_point(color=ORANGE, filled=True, size=90, shape="diamond")
            .encode(x=x, y="now:Q", tooltip=[alt.Tooltip("now:Q", format=".3~s", title="now")])
        )
    return alt.layer(*layers)


def heat(
    frame: pd.DataFrame, x: str, y: str, value: str, title: str, limits: tuple[float, float], text: bool = True
) -> Chart:
    """A heat map of columns `x`, `y`, `value` and `says` (the tooltip), in one hue from light to dark."""
    x_axis = alt.X(f"{x}:N", title=x, sort=None, axis=alt.Axis(labelAngle=-30, orient="top", **_CELLS))
    y_axis = alt.Y(f"{y}:N", title=y, sort=None, axis=alt.Axis(**_CELLS))
    scale = alt.Scale(scheme="oranges", domain=list(limits), clamp=True)
    cells = (
        alt.Chart(frame)
        .mark_rect(cornerRadius=3, stroke="#8a949e", strokeOpacity=0.35)
        .encode(
            x=x_axis,
            y=y_axis,
            color=alt.Color(f"{value}:Q", title=title, scale=scale, legend=alt.Legend(orient="bottom")),
            tooltip=[alt.Tooltip(f"{x}:N"), alt.Tooltip(f"{y}:N"), alt.Tooltip("says:N", title=title)],
        )
    )
    if not text:
        return alt.layer(cells)
    dark = (limits[0] + limits[1]) * 0.6
    labels = (
        alt.Chart(frame)
        .mark_text(fontSize=11)
        .encode(
            x=x_axis,
            y=y_axis,
            text="says:N",
            color=alt.condition(f"datum['{value}'] > {dark}", alt.value("white"), alt.value("#17212b")),
        )
    )
    return alt.layer(cells, labels)


def states_map(frame: pd.DataFrame, states: list[str]) -> Chart:
    """Replicas by adapters, each cell one of four states, told apart by colour and by a sign."""
    x = alt.X("adapter:N", title=None, sort=None, axis=alt.Axis(labelAngle=-60, labelOverlap=True, **_CELLS))
    y = alt.Y("replica:N", title=None, sort=None, axis=alt.Axis(**_CELLS))
    colours = alt.Scale(domain=states, range=[BLUE, "#9ad1f2", "#D55E00", "rgba(138,148,158,0.13)"])
    cells = (
        alt.Chart(frame)
        .mark_rect(cornerRadius=2, stroke=GREY, strokeOpacity=0.2)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "state:N", title=None, sort=states, scale=colours, legend=alt.Legend(orient="top", columns=2)
            ),
            tooltip=["replica:N", "adapter:N", "state:N"],
        )
    )
    signs = (
        alt.Chart(frame[frame["state"] == states[2]])
        .mark_text(text="×", color="white", fontSize=13, fontWeight="bold")
        .encode(x=x, y=y)
    )
    return alt.layer(cells, signs)


def timeline(frame: pd.DataFrame, steps: tuple[str, ...]) -> Chart:
    """Decisions over time, a row for each step; colour and shape say the same."""
    colours = [BLUE, ORANGE, GREEN, "#D55E00"]
    chart: Chart = (
        alt.Chart(frame)
        .mark_point(filled=True, size=70, opacity=0.8)
        .encode(
            x=alt.X("at:T", title=None, axis=alt.Axis(format="%H:%M:%S", tickCount=6, **_AXIS)),
            y=alt.Y(
                "step:N", title=None, sort=list(steps), scale=alt.Scale(domain=list(steps)), axis=alt.Axis(**_AXIS)
            ),
            color=alt.Color("step:N", legend=None, scale=alt.Scale(domain=list(steps), range=colours)),
            shape=alt.Shape("step:N", legend=None, scale=alt.Scale(domain=list(steps))),
            tooltip=[alt.Tooltip("at:T", format="%H:%M:%S"), "subject:N", "reason:N", "what:N"],
        )
    )
    return chart


def frontier(frame: pd.DataFrame) -> Chart:
    """Strategies by `gpu_hours` and `slo_attainment`, each with its name beside the point; ours in another colour."""
    x = alt.X("gpu_hours:Q", title="GPU-hours", axis=alt.Axis(tickCount=6, **_AXIS), scale=alt.Scale(zero=False))
    y = alt.Y(
        "slo_attainment:Q", title="within the SLO", axis=alt.Axis(format="%", tickCount=5, **_AXIS),
        scale=alt.Scale(zero=False, padding=14),
    )  # fmt: skip
    ours = alt.condition("datum.strategy == 'ours'", alt.value(ORANGE), alt.value(BLUE))
    tips = ["strategy:N", alt.Tooltip("gpu_hours:Q", format=",.1f"), alt.Tooltip("slo_attainment:Q", format=".2%")]
    points = alt.Chart(frame).mark_point(filled=True, size=110).encode(x=x, y=y, color=ours, tooltip=tips)
    names = alt.Chart(frame).mark_text(align="left", dx=9, color=GREY).encode(x=x, y=y, text="strategy:N")
    return alt.layer(points, names)

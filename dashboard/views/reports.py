"""Simulator reports: what `lora-autoscaler simulate` wrote into a folder: strategies on one trace, side by side."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import charts, marks, states
from dashboard.api import Json
from dashboard.scene import scene, settings
from dashboard.words import count, hours, plural, seconds

MOST_REPORTS = 200
MOST_BYTES = 64 << 20
COMMAND = (
    "lora-autoscaler simulate --policy policies/default.yaml --trace TRACE --strategy ours "
    "--output FOLDER/report.json --html FOLDER/report.html"
)
# (key, column, words); a report that lacks a key has no such column.
_FIGURES: tuple[tuple[str, str, Any], ...] = (
    ("gpu_hours", "GPU-hours", hours),
    ("slo_attainment", "Within the SLO", lambda v: f"{v * 100:.1f} %"),
    ("ttft_p50_s", "TTFT p50", seconds),
    ("ttft_p99_s", "TTFT p99", seconds),
    ("adapter_loads_per_1000", "Loads per 1,000", count),
    ("moves", "Moves", count),
    ("tier_changes", "Tier changes", count),
    ("requests", "Requests", count),
    ("errors", "Errors", count),
)


_ON_PHONES = {"gpu_hours", "slo_attainment", "ttft_p99_s"}


@dataclass(frozen=True, slots=True)
class Report:
    """One file of the folder."""

    path: Path
    at_s: float
    size_bytes: int


def show() -> None:
    """The page."""
    st.title("Simulator reports")
    folder = settings().reports
    if folder is None:
        states.empty(
            "No folder of reports is set",
            f"Start the dashboard with `LORA_AUTOSCALER_REPORTS=FOLDER` and let the simulator write there: `{COMMAND}`",
        )
        return
    found = reports(folder)
    if not found:
        states.empty("No report yet", f"Nothing ends in `.json` in {folder}. Write one: `{COMMAND}`")
        return
    names = [report.path.name for report in found]
    times = {r.path.name: datetime.datetime.fromtimestamp(r.at_s, scene().tz).strftime("%d %b %H:%M") for r in found}
    name = st.selectbox(
        "Report", names, key="report", bind="query-params", format_func=lambda n: f"{n}, {times[n]}", width=460
    )
    chosen = next((report for report in found if report.path.name == name), found[0])
    value = read(chosen)
    if isinstance(value, str):
        marks.banner("warn", "This file is not shown", [value])
        return
    _strategies(chosen, value)


def reports(folder: Path) -> list[Report]:
    """The folder's JSON files, newest first; nothing where it cannot be read."""
    try:
        files = [(p, p.stat()) for p in folder.glob("*.json") if p.is_file()]
    except OSError:
        return []
    found = [Report(path, stat.st_mtime, stat.st_size) for path, stat in files]
    return sorted(found, key=lambda r: (-r.at_s, r.path.name))[:MOST_REPORTS]


def read(report: Report) -> Json | str:
    """A report's content, or a sentence that says why it is none."""
    name = report.path.name
    if report.size_bytes > MOST_BYTES:
        return f"{name} has {report.size_bytes >> 20} MiB; up to {MOST_BYTES >> 20} MiB are read."
    try:
        value = json.loads(report.path.read_bytes())
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}."
    except ValueError as error:
        return f"{name} is not valid JSON: {error}."
    told = value.get("strategies") if isinstance(value, dict) else None
    if not isinstance(told, dict) or not told or not all(isinstance(f, dict) for f in told.values()):
        return f"{name} holds no `strategies`: it was not written by `lora-autoscaler simulate`."
    return dict(value)


def _strategies(report: Report, value: Json) -> None:
    told: dict[str, Json] = value["strategies"]
    known = {name: {k: f[k] for k, _, _ in _FIGURES if _number(f.get(k))} for name, f in told.items()}
    marks.banner("info", f"{plural(len(told), 'strategy', 'strategies')} on the same trace", list(_best(known)))
    columns = [(k, head, words) for k, head, words in _FIGURES if any(k in f for f in known.values())]
    rows: list[list[str | marks.Cell]] = [
        [
            name,
            *(_figure(words(f[k]) if k in f else "", k) for k, _, words in columns),
        ]
        for name, f in sorted(known.items(), key=lambda item: (item[1].get("gpu_hours", float("inf")), item[0]))
    ]
    kinds = ["keep", *("num" if k in _ON_PHONES else "num wide" for k, _, _ in columns)]
    marks.table("Strategies, fewest GPU-hours first", ["Strategy", *(h for _, h, _ in columns)], rows, kinds)
    points = [{"strategy": n, **f} for n, f in known.items() if {"gpu_hours", "slo_attainment"} <= f.keys()]
    if len(points) > 1:
        st.markdown("**What the promise costs: up and to the left is better**")
        charts.show(
            charts.frontier(pd.DataFrame(points)), "reports_frontier", "GPU-hours against requests within the SLO", 300
        )
    _full(report.path.with_suffix(".html"))


def _figure(text: str, key: str) -> marks.Cell:
    kind = "num" if key in _ON_PHONES else "num wide"
    return marks.Cell(escape(text), kind) if text else marks.Cell(marks.unknown("not in this report").html, kind)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _best(known: dict[str, Json]) -> list[str]:
    cost = {n: f["gpu_hours"] for n, f in known.items() if "gpu_hours" in f}
    kept = {n: f["slo_attainment"] for n, f in known.items() if "slo_attainment" in f}
    said = []
    if cost:
        least = min(cost, key=lambda n: (cost[n], n))
        said.append(f"Fewest GPU-hours: {least}, {hours(cost[least])}.")
    if kept:
        most = max(sorted(kept), key=lambda n: kept[n])
        said.append(f"Most requests within the SLO: {most}, {kept[most] * 100:.1f} %.")
    return said


def _full(page: Path) -> None:
    """The report's own page, to be opened beside: it brings scripts, which have no business inside this one."""
    try:
        body = page.read_bytes() if page.stat().st_size <= MOST_BYTES else b""
    except OSError:
        body = b""
    if body:
        st.download_button(
            "The full report", body, page.name, "text/html", icon=":material/download:", key="report_html"
        )
    else:
        st.caption(f"With `--html {page.name}` beside it, the simulator's own page can be opened from here.")

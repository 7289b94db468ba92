"""Pieces of a page in HTML: banner, table, badge, chip. Everything that comes from outside is escaped here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import streamlit as st

from dashboard.scene import painted

CSS = """
<style>
:root { --well: #00735a; --bad: #b34700; --warn: #8a5d00; --info: #005a8f; }
.stApp { --well: light-dark(#00735a, #35c8a0); --bad: light-dark(#b34700, #ff9a52);
  --warn: light-dark(#8a5d00, #f2b84b); --info: light-dark(#005a8f, #7cc5f0); }
[data-testid="stMainBlockContainer"] { padding: 3.4rem 2.2rem 3rem; max-width: 1320px; }
[data-testid="stMainBlockContainer"] h1 { font-size: 1.9rem; padding: .3rem 0 .7rem; }
[data-stale="true"] { opacity: 1 !important; transition: none !important; }
[class*="st-key-figures"] { display: grid !important; gap: .75rem;
  grid-template-columns: repeat(auto-fit, minmax(175px, 1fr)); }
.st-key-figures_fleet { grid-template-columns: repeat(auto-fit, minmax(205px, 1fr)) !important; }
[class*="st-key-figures"] > div, [class*="st-key-figures"] [data-testid="stMetric"] {
  height: 100%; width: 100% !important; }
[data-testid="stMetricValue"] { font-size: 1.6rem; }
.la-banner { display: flex; gap: .9rem; align-items: flex-start; padding: .95rem 1.1rem; border-radius: 10px;
  border: 1px solid color-mix(in srgb, var(--tone) 45%, transparent); border-left: 6px solid var(--tone);
  background: color-mix(in srgb, var(--tone) 9%, transparent); }
.la-banner .sign { font-size: 1.5rem; line-height: 1.6rem; color: var(--tone); font-weight: 700; }
.la-banner h2 { font-size: 1.15rem; line-height: 1.6rem; margin: 0 0 .15rem; padding: 0; font-weight: 650; }
.la-banner p { margin: .1rem 0 0; line-height: 1.45; overflow-wrap: anywhere; }
.la-banner p.quiet, .la-quiet { opacity: .78; font-size: .9rem; }
.well { --tone: var(--well); } .bad { --tone: var(--bad); }
.warn { --tone: var(--warn); } .info { --tone: var(--info); }
.la-scroll { overflow-x: auto; }
.la-table { width: 100%; border-collapse: collapse; font-size: .9rem; }
.la-table caption { text-align: left; font-weight: 600; padding: .1rem 0 .4rem; }
.la-table th { text-align: left; font-weight: 600; opacity: .78; white-space: nowrap; font-size: .82rem; }
.la-table th, .la-table td { padding: .42rem .7rem .42rem 0; vertical-align: top;
  border-bottom: 1px solid color-mix(in srgb, currentColor 14%, transparent); }
.la-table td.num, .la-table th.num { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.la-table td.keep { white-space: nowrap; }
.la-tag { display: inline-block; padding: 0 .5rem; border-radius: 999px; font-size: .8rem; line-height: 1.35rem;
  white-space: nowrap; border: 1px solid color-mix(in srgb, var(--tone, currentColor) 55%, transparent);
  color: var(--tone, inherit); background: color-mix(in srgb, var(--tone, currentColor) 9%, transparent); }
.la-tag { margin: 0 .25rem .15rem 0; }
[data-testid="stMetricDelta"] *, [data-testid="stMetricLabel"] * { white-space: normal !important; overflow: visible; }
[data-testid="stMetricDelta"] { height: auto; }
.la-banner code, .la-steps code { font-size: .88em; padding: .05rem .3rem; border-radius: 4px;
  background: color-mix(in srgb, currentColor 10%, transparent); }
.la-bar { display: inline-block; width: 72px; height: .55rem; border-radius: 4px; margin-right: .5rem; overflow: hidden;
  background: color-mix(in srgb, currentColor 14%, transparent); vertical-align: middle; }
.la-bar i { display: block; height: 100%; background: var(--tone, var(--info)); }
.la-steps { margin: 0; padding: 0; list-style: none; }
.la-steps li { padding: .4rem 0 .4rem 1rem; border-left: 2px solid color-mix(in srgb, currentColor 25%, transparent);
  position: relative; overflow-wrap: anywhere; }
.la-steps li::before { content: ""; position: absolute; left: -5px; top: .85rem; width: 8px; height: 8px;
  border-radius: 50%; background: var(--info); }
.la-steps b { font-weight: 620; }
.la-unknown { opacity: .7; font-style: italic; }
@media (max-width: 640px) {
  [data-testid="stMainBlockContainer"] { padding-left: .9rem; padding-right: .9rem; }
  [data-testid="stMainBlockContainer"] h1 { font-size: 1.6rem; }
  [class*="st-key-figures"] { grid-template-columns: repeat(2, minmax(0, 1fr)) !important; }
  [data-testid="stMetric"] { padding: .6rem .7rem; }
  [data-testid="stMetricValue"] { font-size: 1.35rem; }
  .la-banner { padding: .8rem .8rem; gap: .6rem; }
  .la-table .wide { display: none; }
  .la-bar { display: none; }
  .la-table th, .la-table td { padding-right: .5rem; }
}
</style>
"""

SIGNS = {"well": "✓", "bad": "▲", "warn": "!", "info": "i"}
TONES = {"none": "well", "well": "well", "unknown": "warn", "attention": "warn"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that is more than text: ready HTML, and its classes (`num` right-aligned, `wide` hidden on phones)."""

    html: str
    kind: str = ""


def tone(cause: str) -> str:
    """The tone of a cause: well, warn or bad."""
    return TONES.get(cause, "bad")


def banner(kind: str, title: str, lines: Iterable[str] = (), quiet: str = "") -> None:
    """A coloured box with a sign, a title and sentences. `kind`: well, bad, warn or info."""
    body = "".join(f"<p>{prose(line)}</p>" for line in lines if line)
    after = f'<p class="quiet">{prose(quiet)}</p>' if quiet else ""
    role = "alert" if kind == "bad" else "status"
    st.html(
        f'<div class="la-banner {kind}" role="{role}"><div class="sign" aria-hidden="true">{SIGNS[kind]}</div>'
        f"<div><h2>{escape(title)}</h2>{body}{after}</div></div>"
    )


def prose(text: str) -> str:
    """Escaped text; what stands between backticks is set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def tag(text: str, kind: str = "") -> str:
    """A small label."""
    return f'<span class="la-tag {kind}">{escape(text)}</span>'


def tier(name: str) -> str:
    """A tier's label."""
    return tag(name, {"hot": "bad", "warm": "warn", "cold": "info"}.get(name, ""))


def bar(ratio: float | None, text: str, kind: str = "") -> Cell:
    """A bar of 0..1 beside its number; the number alone where the ratio is unknown."""
    if ratio is None:
        return Cell(unknown().html, "keep")
    width = min(max(ratio, 0.0), 1.0) * 100
    return Cell(
        f'<span class="la-bar {kind}" aria-hidden="true"><i style="width:{width:.0f}%"></i></span>{escape(text)}',
        "keep",
    )


def unknown(why: str = "") -> Cell:
    """An unknown number, with the reason where it is pointed at."""
    return Cell(f'<span class="la-unknown" title="{escape(why, quote=True)}">unknown</span>', "num")


def number(text: str, why: str = "") -> Cell:
    """A number, right-aligned."""
    return unknown(why) if text == "unknown" else Cell(escape(text), "num")


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str | Cell]], kinds: Sequence[str] = ()) -> None:
    """A real table, read well by a screen reader. `kinds`: classes of each column."""
    classes = [*kinds, *[""] * (len(heads) - len(kinds))]
    head = "".join(f'<th scope="col" class="{c}">{escape(h)}</th>' for h, c in zip(heads, classes, strict=True))
    body = "".join(
        "<tr>" + "".join(_cell(cell, c) for cell, c in zip(row, classes, strict=True)) + "</tr>" for row in rows
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    st.html(
        f'<div class="la-scroll" tabindex="0" role="region" aria-label="{escape(caption, quote=True)}">'
        f'<table class="la-table">{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _cell(cell: str | Cell, kind: str) -> str:
    if isinstance(cell, Cell):
        return f'<td class="{kind} {cell.kind}">{cell.html}</td>'
    return f'<td class="{kind}">{escape(cell)}</td>'


def figure(
    label: str, value: str, beside: str | None = None, about: str | None = None, kind: str = "", line: Any = None
) -> None:
    """One number with its name, a short remark, a longer explanation, and its line over time where there is one."""
    colours: dict[str, Literal["off", "red", "green"]] = {"bad": "red", "well": "green"}
    st.metric(
        label, value, beside, delta_color=colours.get(kind, "off"), delta_arrow="off", help=about, border=True,
        chart_data=(line or None) if painted() else None,
    )  # fmt: skip


def steps(trail: Iterable[tuple[str, str]]) -> None:
    """A trail: (reason, sentence) in order."""
    items = "".join(f"<li><b>{escape(reason)}</b> {prose(text)}</li>" for reason, text in trail)
    st.html(f'<ol class="la-steps">{items}</ol>')

"""Tenants: who asks for how much, in which tier, served how well. The API sorts, searches and pages."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from dashboard import charts, marks, states
from dashboard.api import Json, segment
from dashboard.picking import note, steady
from dashboard.scene import Scene, first, live, scene
from dashboard.words import count, percent, plural, rate, seconds, sentence, spaced

PAGE = 50
FIRST = 12
_SORTS = {
    "-rate": "Rate",
    "-forecast": "Forecast",
    "-ttft": "TTFT",
    "tenant": "Name",
}
_TIERS = ("hot", "warm", "cold")


def show() -> None:
    """The page."""
    st.title("Tenants")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input(
            "Search", key="q", bind="query-params", placeholder="part of a tenant's name", type="search", live=True,
            width=260,
        )  # fmt: skip
        st.segmented_control(
            "Tier", _TIERS, key="tier", bind="query-params", format_func=str.capitalize, help="None chosen: all tiers"
        )
        st.segmented_control(
            "Highest first by", list(_SORTS), key="sort", bind="query-params", default="-rate", required=True,
            format_func=_SORTS.__getitem__,
        )  # fmt: skip
    live(lambda: _body(scene()))


def _asked() -> dict[str, Any]:
    state = st.session_state
    return {"search": state.get("q") or "", "tier": state.get("tier"), "sort": state.get("sort") or "-rate"}


def _body(scene: Scene) -> None:
    asked = _asked()
    cursors: list[str] = _cursors(asked)
    answer = scene.read("tenants", limit=PAGE, cursor=cursors[-1], **asked)
    page = states.known(answer)
    if page is None:
        return
    items = page["items"]
    if not items:
        looked = f"No tenant matches {asked['search']!r}" if asked["search"] else "No tenant here"
        states.empty(looked, "Clear the search or choose another tier to see more.")
    else:
        _pager(page, cursors)
        listed = st.empty()
        first(listed, lambda: _first_rows(items))
        with listed.container():
            _list(items, f"tenants_{asked}_{cursors[-1]}")
    chosen = st.query_params.get("tenant")
    if chosen:
        _detail(scene, chosen)
    elif items:
        st.caption("Choose a row to see why a tenant is in its tier, what is foreseen and who serves it.")


def _cursors(asked: dict[str, Any]) -> list[str]:
    """Where each page up to this one begins; a new question begins at the first."""
    key = tuple(asked.values())
    if st.session_state.get("tenants_asked") != key:
        st.session_state["tenants_asked"], st.session_state["tenants_cursors"] = key, [""]
    cursors: list[str] = st.session_state["tenants_cursors"]
    return cursors


def _pager(page: Json, cursors: list[str]) -> None:
    first = (len(cursors) - 1) * PAGE + 1
    last = first + len(page["items"]) - 1
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{first:,}–{last:,}** of {plural(page['total'], 'tenant')}", width="content")
        st.button(
            "Previous", icon=":material/chevron_left:", disabled=len(cursors) == 1, key="tenants_back",
            on_click=_back, args=(cursors,),
        )  # fmt: skip
        st.button(
            "Next", icon=":material/chevron_right:", disabled=not page["next_cursor"], key="tenants_next",
            icon_position="right", on_click=cursors.append, args=(page["next_cursor"],),
        )  # fmt: skip


def _back(cursors: list[str]) -> None:
    cursors.pop()


def _first_rows(items: list[Json]) -> None:
    """The top of the list as plain text, until the browser has loaded the table that can be chosen from."""
    rows = [_row(t) for t in items[:FIRST]]
    marks.table(
        "",
        ["Tenant", "Tier", "Rate now", "Forecast", "TTFT p99, s", "SLO, s", "Promise"],
        [
            [
                r["Tenant"], r["Tier"], marks.number(count(r["Rate"])), marks.number(count(r["Mean"])),
                marks.unknown() if r["TTFT"] is None else marks.number(f"{r['TTFT']:.2f}"),
                marks.number(f"{r['SLO']:.2f}"), r["Served"] or "unknown",
            ]
            for r in rows
        ],
        ["keep", "", "num", "num wide", "num", "num wide", "keep"],
    )  # fmt: skip


def _list(items: list[Json], key: str) -> None:
    items = steady(key, items)
    frame = pd.DataFrame([_row(t) for t in items])
    column = st.column_config
    highest = max((t["forecast_p90_tokens_per_s"] for t in items), default=1.0) or 1.0
    event = st.dataframe(
        frame, hide_index=True, key=key, on_select="rerun", selection_mode="single-row",
        placeholder="unknown", height=min(38 + 35 * len(items), 460), row_height=35,
        alt="Tenants with tier, rate, forecast, TTFT, SLO and owners",
        column_config={
            "Tenant": column.TextColumn(pinned=True, width="medium"),
            "Tier": column.TextColumn(width=70),
            "Rate": column.NumberColumn("Rate now", format="compact", help="tokens/s asked for now"),
            "Mean": column.NumberColumn("Forecast", format="compact", help="tokens/s expected over the horizon"),
            "Upper": column.ProgressColumn(
                "Upper band (p90)", format="compact", min_value=0.0, max_value=highest, width=150,
                help="tokens/s that nine of ten windows stay below; the bar is its share of the highest on this page",
            ),
            "TTFT": column.NumberColumn("TTFT p99, s", format="%.2f", help="worst of its adapters"),
            "SLO": column.NumberColumn("SLO, s", format="%.2f"),
            "Served": column.TextColumn("Promise", help="whether the last window met the SLO"),
            "Owners": column.ListColumn("Owners", help="replicas that serve its adapters"),
        },
    )  # fmt: skip
    note(key, event, items, "tenant", "tenant")


def _row(tenant: Json) -> Json:
    return {
        "Tenant": tenant["tenant"],
        "Tier": tenant["tier"],
        "Rate": tenant["rate_tokens_per_s"],
        "Mean": tenant["forecast_mean_tokens_per_s"],
        "Upper": tenant["forecast_p90_tokens_per_s"],
        "TTFT": tenant["ttft_p99_s"],
        "SLO": tenant["slo_ttft_s"],
        "Served": "▲ missed" if tenant["slo_missed"] else "✓ met" if tenant["ttft_p99_s"] is not None else None,
        "Owners": tenant.get("owners"),
    }


def _detail(scene: Scene, name: str) -> None:
    st.divider()
    answer = scene.read(f"tenants/{segment(name)}")
    tenant = states.known(answer)
    if tenant is None:
        return
    head, close = st.columns([6, 1], vertical_alignment="center")
    head.subheader(name, anchor=False)
    close.button("Close", key="tenant_close", width="stretch", on_click=_close)
    _facts(tenant, scene)
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("**Rate and forecast**")
        chart = charts.band(tenant["forecast"], tenant["rate_tokens_per_s"])
        charts.show(chart, "tenant_band", f"forecast of {name} with its band to p90", 220)
        st.caption("Line: mean. Band: p50 to p90. Diamond: now.")
    with right:
        st.markdown("**Why this tier**")
        marks.steps((spaced(s["reason"]), sentence(s["message"])) for s in tenant["trail"])
    marks.table(
        "Adapters and who serves them",
        ["Adapter", "Owners, preferred first", "By which rule", "Standbys"],
        [_adapter_row(a) for a in tenant["adapters"][:50]],
        ["keep", "", "keep", "wide"],
    )
    if tenant["evidence"]:
        marks.steps(("", sentence(e)) for e in tenant["evidence"])


def _close() -> None:
    st.query_params.pop("tenant", None)


def _adapter_row(adapter: Json) -> list[str]:
    owners = ", ".join(o["replica"] for o in adapter["owners"]) or "nobody"
    return [adapter["adapter"], owners, adapter["via"] or "no ring yet", ", ".join(adapter["standbys"]) or "none"]


def _facts(tenant: Json, scene: Scene) -> None:
    override = tenant["override"]
    with st.container(key="figures_tenants"):
        marks.figure("Tier", tenant["tier"].upper(), f"since {scene.clock(tenant['since'])}")
        marks.figure("Rate now", rate(tenant["rate_tokens_per_s"]))
        marks.figure("TTFT p99", seconds(tenant["ttft_p99_s"]), f"SLO {seconds(tenant['slo_ttft_s'])}")
        missed = tenant["slo_missed"]
        marks.figure("Promise", percent(tenant["slo_objective_ratio"]), "missed just now" if missed else "met just now",
                     "Requests within the SLO; judged over the last window.", "bad" if missed else "well")  # fmt: skip
    if override and override["active"]:
        marks.banner(
            "info",
            f"Overridden to {override['tier'].upper()} until {scene.clock(override['expires_at'])}",
            [f"{override['actor']}: {sentence(override['reason'])}"],
        )

"""The pages, in the order of the questions: is it well, who hurts whom, what was done, what can I do."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dashboard.views import cost, decisions, fleet, neighbours, overrides, reports, ring, tenants, thrash

_Page = tuple[Callable[[], None], str, str, str]

_SECTIONS: dict[str, tuple[_Page, ...]] = {
    "Now": (
        (fleet.show, "Fleet", "monitor_heart", ""),
        (tenants.show, "Tenants", "groups", "tenants"),
    ),
    "Who hurts whom": (
        (neighbours.show, "Noisy neighbours", "campaign", "noisy-neighbours"),
        (thrash.show, "Adapter thrash", "swap_horiz", "adapter-thrash"),
    ),
    "What was done": (
        (ring.show, "Ring", "hub", "ring"),
        (decisions.show, "Decisions", "history", "decisions"),
    ),
    "What can be done": (
        (overrides.show, "Overrides", "tune", "overrides"),
        (cost.show, "Cost", "payments", "cost"),
        (reports.show, "Simulator reports", "science", "reports"),
    ),
}

PAGES = {
    section: [
        st.Page(show, title=title, icon=f":material/{icon}:", url_path=path, default=not path)
        for show, title, icon, path in pages
    ]
    for section, pages in _SECTIONS.items()
}

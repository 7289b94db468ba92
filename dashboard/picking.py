"""Choosing a row of a live list: while one is chosen the list stands still, and the mark stays on what was chosen."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard.api import Json


def steady(key: str, items: list[Json]) -> list[Json]:
    """The items to show: those of the moment of the choice where a row of the list `key` is chosen, else the newest."""
    held: list[Json] | None = st.session_state.get(f"{key}_held")
    if held is not None and _rows(st.session_state.get(key)):
        return held
    st.session_state[f"{key}_held"] = items
    return items


def note(key: str, event: Any, items: list[Json], field: str, param: str) -> None:
    """Write the chosen row's `field` into the address as `param`, once for each choice; take it out when it ends."""
    rows = _rows(event)
    if rows == st.session_state.get(f"{key}_rows", []):
        return
    st.session_state[f"{key}_rows"] = rows
    if rows and rows[0] < len(items):
        st.query_params[param] = items[rows[0]][field]
    elif param in st.query_params:
        del st.query_params[param]


def _rows(event: Any) -> list[int]:
    return [] if not event else list(event["selection"]["rows"])

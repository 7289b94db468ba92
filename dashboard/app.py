"""The dashboard's entry: `streamlit run dashboard/app.py` with LORA_AUTOSCALER_URL and LORA_AUTOSCALER_TOKEN."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard import marks, states
from dashboard.api import Answer
from dashboard.scene import live, reading_api, scene, settings
from dashboard.settings import SettingsError
from dashboard.views import PAGES


def main() -> None:
    """Find the fleets, then show the page that was asked for."""
    logo = Path(__file__).with_name("logo.svg")
    st.set_page_config(page_title="LoRA autoscaler", page_icon=logo, layout="wide", initial_sidebar_state=250)
    st.logo(logo, size="large")
    st.html(marks.CSS)
    try:
        settings()
    except SettingsError as error:
        marks.banner("bad", "The dashboard is not set up", [str(error)])
        return
    page = st.navigation(PAGES)
    waiting = st.empty()
    waiting.caption("Asking the controller ...")
    answer = reading_api().get("fleets")
    waiting.empty()
    _sidebar([f["fleet"] for f in answer.items])
    if not answer.items:
        st.title(page.title)
        _no_fleet(answer)
        return
    page.run()


def _sidebar(fleets: list[str]) -> None:
    asked = st.query_params.get("fleet") or st.session_state.get("fleet_seen", "")
    with st.sidebar:
        if len(fleets) > 1:
            index = fleets.index(asked) if asked in fleets else 0
            asked = st.selectbox("Fleet", fleets, index=index)
        elif fleets:
            asked = fleets[0]
        st.toggle("Live", value=True, key="live", help="Look again every few seconds. Off: the page stands still.")
        if fleets:
            st.caption(f"Fleet **{asked}**  \nTimes in {scene().zone_name}")
    if fleets:
        st.session_state["fleet_seen"] = asked
        st.query_params["fleet"] = asked


def _no_fleet(answer: Answer) -> None:
    """Nothing to show; the page comes by itself as soon as there is something."""

    def again() -> None:
        now = reading_api().get("fleets")
        if now.items:
            st.rerun(scope="app")
        if states.known(now) is not None:
            states.empty(
                "No fleet was observed yet",
                "The controller answers but has not finished a tick. This page comes by itself as soon as it has.",
            )

    live(again)


main()

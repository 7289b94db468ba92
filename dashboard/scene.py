"""What every page is shown with: the API, the fleet, the viewer's clock."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard import words
from dashboard.api import Answer, Api, segment
from dashboard.history import History
from dashboard.settings import Settings, read_settings

PAINTS_S = 0.6


@st.cache_resource(show_spinner=False)
def settings() -> Settings:
    """The server's settings, read once."""
    return read_settings()


@st.cache_resource(show_spinner=False)
def reading_api() -> Api:
    """The API as every viewer reads it."""
    return Api(settings().url, settings().token)


@st.cache_resource(show_spinner=False)
def changing_api() -> Api:
    """The API with the operator's token, which stays in this process."""
    return Api(settings().url, settings().operator_token)


@st.cache_resource(show_spinner=False)
def history(fleet: str) -> History:
    """What this server saw of a fleet."""
    return History()


@dataclass(frozen=True, slots=True)
class Scene:
    """One viewer's look at one fleet."""

    api: Api
    fleet: str
    tz: datetime.tzinfo

    def read(self, path: str = "", max_age_s: float = 1.5, **params: Any) -> Answer:
        """The answer of `/v1/fleets/FLEET/PATH`."""
        whole = f"fleets/{segment(self.fleet)}" + (f"/{path}" if path else "")
        return self.api.get(whole, params, max_age_s)

    def status(self) -> Answer:
        """The fleet's status; what is seen of it becomes history."""
        answer = self.read()
        if answer.value is not None:
            history(self.fleet).see(answer.value)
        return answer

    def clock(self, text: str | None) -> str:
        """A time of the API on the viewer's clock."""
        return words.clock(text, self.tz, datetime.datetime.now(self.tz).date())

    @property
    def zone_name(self) -> str:
        """The viewer's time zone."""
        return str(self.tz)


def scene() -> Scene:
    """This viewer's scene."""
    return Scene(reading_api(), st.session_state.get("fleet_seen", ""), words.zone(st.context.timezone))


def live(body: Callable[[], None]) -> None:
    """Show a page's body again every few seconds, unless the viewer paused it. Only what changed is drawn."""
    waiting = st.empty()
    waiting.caption("Asking the controller ...")
    every = settings().refresh_s if st.session_state.get("live", True) else None
    st.fragment(run_every=every)(body)()
    waiting.empty()


def painted() -> bool:
    """Whether this tab has shown something already, so that its browser may be given more to load."""
    return bool(st.session_state.get("painted"))


def let_paint() -> None:
    """Once a tab: let the browser show what it was sent before it loads the library of charts or of large tables.

    Either is a megabyte of JavaScript that takes a second to read on a slow machine: the answer does not wait for it.
    """
    if not painted():
        st.session_state["painted"] = True
        time.sleep(PAINTS_S)


def first(place: DeltaGenerator, rows: Callable[[], None]) -> None:
    """Once a tab: show plain rows in the place of a large table, which comes when the browser has painted them."""
    if not painted():
        with place.container():
            rows()
        let_paint()


def since_tick_s(answer: Answer) -> float | None:
    """Seconds since the tick that a status tells of, by the API's own clock; None where it is not told."""
    at = words.instant((answer.value or {}).get("at"))
    if at is None or answer.server_time_s is None:
        return None
    return max(answer.server_time_s - at.timestamp(), 0.0) + (time.monotonic() - answer.at_s)

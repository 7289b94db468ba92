"""Pages over an API that answers what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import unescape

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from tests.dashboard.recorded_api import RecordedApi, recorded, serving

Look = Callable[..., AppTest]


@pytest.fixture
def thrash() -> Iterator[RecordedApi]:
    """Fifty adapters sprayed over eight replicas of eight adapter slots."""
    with serving(RecordedApi(recorded("thrash"))) as api:
        yield api


@pytest.fixture
def managed() -> Iterator[RecordedApi]:
    """The same fleet in the controller's hands, with one override."""
    with serving(RecordedApi(recorded("managed"))) as api:
        yield api


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Iterator[Look]:
    """Opens a page as a browser would: `look(api, "tenants", q="acme")`."""

    def open_page(
        api: RecordedApi, page: str, token: str = "reader", reports: str = "", painted: bool = True, **asked: str
    ) -> AppTest:
        for name, value in {
            "URL": api.url,
            "TOKEN": token,
            "OPERATOR_TOKEN": "",
            "USER_HEADER": "",
            "REPORTS": reports,
        }.items():
            monkeypatch.setenv(f"LORA_AUTOSCALER_{name}", value)
        st.cache_resource.clear()
        app = AppTest.from_function(_show, args=(page,), default_timeout=30)
        app.query_params.update(asked)
        app.session_state["fleet_seen"] = "local"
        app.session_state["painted"] = painted
        app.run()
        assert not app.exception, app.exception
        return app

    yield open_page
    st.cache_resource.clear()


def _show(page: str) -> None:
    import importlib

    importlib.import_module(f"dashboard.views.{page}").show()


def said(app: AppTest) -> str:
    """All text of a page, tables and boxes included."""
    html = [unescape(block.proto.body) for block in app.get("html")]
    words = [e.value for kind in (app.markdown, app.caption, app.title, app.subheader) for e in kind]
    figures = [f"{m.label}: {m.value} ({m.delta})" for m in app.metric]
    return "\n".join([*html, *words, *figures])

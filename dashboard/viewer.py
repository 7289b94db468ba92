"""Who looks, and whether they may change something. The operator's token stays in this process: no browser gets it.

Who somebody is comes from a login (OIDC, `st.login`) or from an authenticating proxy in front of the dashboard, never
from what the page sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from dashboard.settings import Settings


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks.

    Attributes:
        name: from the login or the proxy; empty where nobody said.
        may_change: whether this dashboard gives commands for them.
        why_not: a sentence where it does not.
        can_log_in: a login is set up and would help.
    """

    name: str
    may_change: bool
    why_not: str = ""
    can_log_in: bool = False


def viewer(settings: Settings) -> Viewer:
    """The viewer of this session."""
    logins = _login_is_set_up()
    name = _logged_in() if logins else ""
    if not name and settings.user_header:
        name = proxied(st.context.headers, settings.user_header)
    return judged(name, settings, logins)


def judged(name: str, settings: Settings, logins: bool) -> Viewer:
    """Whether `name` may change something, and why not."""
    if not settings.operator_token:
        return Viewer(name, False, "This dashboard only reads: it was given no operator token.")
    if not name:
        why = "Log in to change something." if logins else "Nobody said who you are, so this dashboard only reads."
        return Viewer("", False, why, logins)
    if not allowed(name, settings.operators):
        return Viewer(name, False, f"{name} is not among this dashboard's operators.")
    return Viewer(name, True)


def allowed(name: str, operators: frozenset[str]) -> bool:
    """Whether a name is listed, or its mail domain is (`*@example.com`)."""
    folded = name.lower()
    _, at, domain = folded.rpartition("@")
    return folded in operators or (bool(at) and f"*@{domain}" in operators)


def proxied(headers: Mapping[str, str], header: str) -> str:
    """The name in the proxy's header; printable characters only, at most 100."""
    found = next((value for key, value in headers.items() if key.lower() == header.lower()), "").strip()
    return found if found.isprintable() and len(found) <= 100 else ""


def _login_is_set_up() -> bool:
    try:
        return "auth" in st.secrets
    except FileNotFoundError:
        return False


def _logged_in() -> str:
    if not st.user.is_logged_in:
        return ""
    user = st.user.to_dict()
    verified = user.get("email_verified", True)
    return str((user.get("email") if verified else None) or user.get("preferred_username") or user.get("sub") or "")

"""Overrides: what operators asked for, why, until when. Setting one needs a known operator, a reason, a second look."""

from __future__ import annotations

import datetime

import streamlit as st

from dashboard import marks, states
from dashboard.api import Json, Problem, segment
from dashboard.scene import Scene, changing_api, live, reading_api, scene, settings
from dashboard.viewer import Viewer, viewer
from dashboard.words import instant, plural, rate, seconds, sentence

_TTLS = {"30 minutes": 1800, "1 hour": 3600, "4 hours": 14400, "1 day": 86400, "7 days": 604800}
_TIERS = {"hot": "HOT: a group of its own", "warm": "WARM: on the ring", "cold": "COLD: loaded on first use"}
_SHORTEST_REASON, _LONGEST_REASON = 3, 400


def show() -> None:
    """The page."""
    st.title("Overrides")
    who = viewer(settings())
    live(lambda: _list(scene(), who))
    st.divider()
    if who.may_change:
        _form(scene(), who)
    else:
        _read_only(who)


def _read_only(who: Viewer) -> None:
    marks.banner(
        "info",
        "Read-only",
        [who.why_not],
        "From the shell: `lora-autoscaler override set TENANT TIER --reason WHY --ttl 1h`",
    )
    if who.can_log_in and st.button("Log in", icon=":material/login:", type="primary"):
        st.login()


def _list(scene: Scene, who: Viewer) -> None:
    said = st.session_state.pop("override_done", "")
    if said:
        st.toast(said, icon=":material/check:")
    answer = scene.read("overrides")
    if states.known(answer) is None:
        return
    found = sorted(answer.items, key=lambda o: (not o["active"], o["expires_at"] or ""))
    if not found:
        states.empty("No override", "Every tenant is in the tier that the policy and its load give it.")
        return
    now = datetime.datetime.fromtimestamp(answer.server_time_s or 0.0, datetime.UTC)
    marks.table(
        plural(sum(o["active"] for o in found), "override is active", "overrides are active"),
        ["Tenant", "Tier", "State", "Ends", "By", "Reason"],
        [_row(o, scene, now) for o in found],
        ["keep", "keep", "keep", "keep", "wide", ""],
    )
    if who.may_change:
        _clear(scene, found)


def _row(override: Json, scene: Scene, now: datetime.datetime) -> list[str | marks.Cell]:
    ends = instant(override["expires_at"])
    left = "" if ends is None or ends <= now else f" (in {seconds((ends - now).total_seconds())})"
    return [
        override["tenant"],
        marks.Cell(marks.tier(override["tier"])),
        marks.Cell(marks.tag("active", "info") if override["active"] else marks.tag("expired")),
        scene.clock(override["expires_at"]) + left,
        override["actor"],
        sentence(override["reason"]),
    ]


def _clear(scene: Scene, found: list[Json]) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        tenant = st.selectbox(
            "Clear an override", [o["tenant"] for o in found], index=None, placeholder="choose a tenant", width=300
        )
        if st.button("Clear", disabled=tenant is None, icon=":material/delete:", key="override_clear"):
            _confirm_clear(scene, next(o for o in found if o["tenant"] == tenant))


@st.dialog("Clear this override?")
def _confirm_clear(scene: Scene, override: Json) -> None:
    st.markdown(
        f"{_code(override['tenant'])} is {override['tier'].upper()} by {_code(override['actor'])}: "
        f"{_plain(sentence(override['reason']))} Once it is cleared, policy and load decide again within two ticks."
    )
    if st.button("Clear it", type="primary", key="override_clear_sure"):
        try:
            changing_api().change("DELETE", f"{_path(scene, override['tenant'])}/override")
        except Problem as problem:
            states.explain(problem)
            return
        _done(f"The override of {override['tenant']} is cleared.")


def _form(scene: Scene, who: Viewer) -> None:
    st.subheader("Set an override", anchor=False)
    st.caption(f"As {_code(who.name)}. The name is kept with the reason.")
    left, right = st.columns(2, gap="medium")
    with left:
        tenant = st.text_input("Tenant", key="override_tenant", placeholder="exact name")
        tier = st.selectbox("Tier", list(_TIERS), format_func=_TIERS.__getitem__, key="override_tier")
    with right:
        ttl = st.selectbox("Ends after", list(_TTLS), index=1, key="override_ttl")
        reason = st.text_input(
            "Reason", key="override_reason", max_chars=_LONGEST_REASON, placeholder="launch day, ticket 4711"
        )
    ready = bool(tenant.strip()) and len(reason.strip()) >= _SHORTEST_REASON
    if not ready:
        st.caption("A tenant and a reason are needed.")
    if st.button("Look at what it displaces", type="primary", disabled=not ready, key="override_look"):
        _confirm(scene, who, tenant.strip(), tier, _TTLS[ttl], reason.strip())


@st.dialog("Set this override?", width="medium")
def _confirm(scene: Scene, who: Viewer, tenant: str, tier: str, ttl_s: int, reason: str) -> None:
    answer = scene.read(f"tenants/{segment(tenant)}", max_age_s=0.0)
    current = states.known(answer)
    if current is None:
        return
    _displaces(current, tier, scene)
    st.markdown(f"It ends by itself after {seconds(ttl_s)}. Reason: {_plain(sentence(reason))}")
    if st.button(f"Set {tenant} to {tier.upper()}", type="primary", key="override_sure"):
        known = current["override"]
        revision = known["revision"] if known else 0
        body = {"tier": tier, "reason": f"{reason} (by {who.name}, dashboard)", "ttl_s": ttl_s}
        try:
            changing_api().change("PUT", f"{_path(scene, tenant)}/override", body, {"If-Match": f'"{revision}"'})
        except Problem as problem:
            states.explain(problem)
            return
        _done(f"{tenant} will be {tier.upper()} within two ticks.")


def _displaces(current: Json, tier: str, scene: Scene) -> None:
    name, before = current["tenant"], current["tier"]
    lines = [
        f"{name} asks for {rate(current['rate_tokens_per_s'])} now; its TTFT p99 is {seconds(current['ttft_p99_s'])}."
    ]
    known = current["override"]
    if known and known["active"]:
        lines.append(
            f"It replaces the override to {known['tier'].upper()} by {known['actor']} that ends at "
            f"{scene.clock(known['expires_at'])}: {sentence(known['reason'])}"
        )
    if current["trail"]:
        lines.append(f"Now it is {before.upper()} because: {sentence(current['trail'][-1]['message'])}")
    same = before == tier
    title = f"{name} is {before.upper()} already; the override keeps it there" if same else (
        f"{before.upper()} becomes {tier.upper()}"
    )  # fmt: skip
    marks.banner("info" if same else "warn", title, lines)


def _path(scene: Scene, tenant: str) -> str:
    return f"fleets/{segment(scene.fleet)}/tenants/{segment(tenant)}"


def _done(said: str) -> None:
    reading_api().forget()
    st.session_state["override_done"] = said
    st.rerun()


def _code(text: str) -> str:
    """Text as code: Markdown would make a link of an address."""
    return "`" + text.replace("`", "'") + "`"


def _plain(text: str) -> str:
    """Text that Markdown does not read as anything else."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]()<>#+-.!|~$:" else c for c in text)

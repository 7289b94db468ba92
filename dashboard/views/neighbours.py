"""Noisy neighbours: whose load makes whose first tokens late, by how much, and how sure that is."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from dashboard import charts, marks, states
from dashboard.api import Json
from dashboard.scene import Scene, live, scene
from dashboard.words import percent, plural, seconds, sentence

MOST_ROWS = 30
MOST_WITHOUT = 8
MOST_CELLS = 20


def show() -> None:
    """The page."""
    st.title("Noisy neighbours")
    live(lambda: _body(scene()))


def _body(scene: Scene) -> None:
    if states.status(scene) is None:
        return
    answer = scene.read("noisy-neighbours")
    if states.known(answer) is None:
        return
    found = answer.items
    aggressors = [f for f in found if f["aggressor_score"] > 0 and f["others"]]
    _verdict(found, aggressors)
    if aggressors:
        _heat(aggressors)
    if found:
        _evidence(found)


def _verdict(found: list[Json], aggressors: list[Json]) -> None:
    if not aggressors:
        waiting = sum(1 for f in found if f["missing"])
        marks.banner(
            "well",
            "No tenant is known to hurt another",
            [f"{plural(waiting, 'tenant')} stand out by load, without evidence for a verdict yet." if waiting else ""],
            "A verdict needs victims that are slower with the aggressor active than without it, beyond what happens on "
            "replicas that it does not touch.",
        )
        return
    worst = aggressors[0]
    marks.banner(
        "bad",
        f"{worst['tenant']} hurts {_names(worst['others'])}",
        [
            f"It takes {percent(worst['share_ratio'])} of its replicas' tokens and adds {_effect(worst)} to the "
            "others' time to first token.",
            _more(len(aggressors) - 1),
        ],
        "What helps: a group of its own (tier HOT) or a limit at the gateway. More replicas alone do not.",
    )


def _more(others: int) -> str:
    return "" if not others else f"{plural(others, 'further tenant')} {'hurts' if others == 1 else 'hurt'} others too."


def _names(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _effect(finding: Json) -> str:
    low, high = finding["effect_low_s"], finding["effect_high_s"]
    if low is None or high is None:
        return f"{seconds(finding['effect_s'])} (interval unknown)"
    return f"{seconds(finding['effect_s'])} (95 % sure: {seconds(low)} to {seconds(high)})"


def _heat(aggressors: list[Json]) -> None:
    rows = [
        {"aggressor": f["tenant"], "victim": victim, "added": added_s, "says": seconds(added_s)}
        for f in aggressors[:MOST_CELLS]
        for victim, added_s in _pairs(f)
    ]
    frame = pd.DataFrame(rows)
    victims = frame["victim"].nunique()
    st.markdown("**Who hurts whom: seconds added to the victims' time to first token**")
    highest = float(frame["added"].max()) or 1.0
    charts.show(
        charts.heat(frame, "victim", "aggressor", "added", "seconds added", (0.0, highest), text=victims <= 12),
        "neighbours_heat",
        "aggressors by victims, with the seconds that each adds",
        170 + 34 * min(len(aggressors), MOST_CELLS),
    )
    st.caption(
        "Beside the aggressor, against the same tenant on its other owners now; the mean of all where it has none."
    )


def _pairs(finding: Json) -> list[tuple[str, float]]:
    """Each victim with the seconds that are added to its own; the mean of all where it has no owner to compare with."""
    victims = finding["others"][:MOST_CELLS]
    own_s = finding["added_s"][: len(victims)]
    return [(v, finding["effect_s"] if s is None else max(s, 0.0)) for v, s in zip(victims, own_s, strict=True)]


def _evidence(found: list[Json]) -> None:
    judged = [f for f in found if not f["missing"] or f["victim_score"] > 0]
    open_ = sorted((f for f in found if f not in judged), key=lambda f: -f["share_ratio"])
    shown = [*judged, *open_[:MOST_WITHOUT]][:MOST_ROWS]
    marks.table(
        "Evidence",
        ["Tenant", "Hurts", "Is hurt", "Share of tokens", "Effect on TTFT", "Comparisons", "What is known"],
        [_row(f) for f in shown],
        ["keep", "", "", "", "num wide", "num wide", "wide"],
    )
    if len(found) > len(shown):
        st.caption(f"{len(shown)} of {len(found)} tenants: those with a verdict, then the loudest without one.")
    st.caption("Scores are between 0 and 100 %. A tenant that neither hurts nor is hurt is not listed.")


def _row(finding: Json) -> list[str | marks.Cell]:
    certain = finding["effect_low_s"] is not None
    return [
        finding["tenant"],
        _score(finding["aggressor_score"], finding),
        _score(finding["victim_score"], finding),
        marks.bar(finding["share_ratio"], percent(finding["share_ratio"])),
        _effect(finding) if certain else marks.unknown(finding["missing"] or ""),
        f"{finding['samples']}",
        " ".join(sentence(e) for e in finding["evidence"]),
    ]


def _score(score: float, finding: Json) -> marks.Cell:
    if finding["missing"] and not score:
        return marks.Cell('<span class="la-unknown">no verdict</span>', "keep")
    return marks.bar(score, percent(score), "" if finding["missing"] else "bad")

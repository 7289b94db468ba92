"""Numbers and words are for people."""

from __future__ import annotations

import datetime
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard import words
from dashboard.marks import Cell, _cell, prose, tag, unknown

NUMBERS = st.floats(min_value=0, max_value=1e13, allow_nan=False)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "unknown"), (0, "0"), (0.78, "0.78"), (9.99, "10"), (987, "987"), (4258.3, "4.3k"), (12_400, "12k"),
     (999_960, "1.0M"), (2.5e9, "2.5G")],
)  # fmt: skip
def test_counts(value: float | None, text: str):
    assert words.count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "unknown"), (0, "0 s"), (0.0004, "below 1 ms"), (0.085, "85 ms"), (0.9999, "1.0 s"), (1.24, "1.2 s"),
     (27, "27 s"), (192, "3.2 min"), (14_400, "4.0 h"), (7 * 86_400, "7.0 d")],
)  # fmt: skip
def test_seconds(value: float | None, text: str):
    assert words.seconds(value) == text


@given(NUMBERS)
def test_every_number_is_short_and_true_to_a_twentieth(value: float):
    text = words.count(value)
    assert len(text) <= 8
    scale = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], 1.0)
    shown = float(text.rstrip("kMG")) * scale
    assert math.isclose(shown, value, rel_tol=0.06)


@given(st.floats(min_value=0.001, max_value=1e9))
def test_every_duration_has_a_unit_that_fits(value: float):
    number, unit = words.seconds(value).split(" ")
    scale = {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86400}[unit]
    assert math.isclose(float(number) * scale, value, rel_tol=0.06)


def test_a_time_is_on_the_viewer_s_clock_and_says_the_day_where_it_is_another():
    tz = words.zone("Europe/Zurich")
    at = "2026-11-29T22:04:10.500Z"
    assert words.clock(at, tz, datetime.date(2026, 11, 29)) == "23:04:10"
    assert words.clock(at, tz, datetime.date(2026, 11, 30)) == "29 Nov 23:04"
    assert words.clock(None, tz) == "unknown"
    assert words.zone("Nowhere/Land") is datetime.UTC
    assert words.zone(None) is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [("nothing hurts", "Nothing hurts."), ("warm: 5 requests wait", "warm: 5 requests wait."),
     ("hot-acme waits", "hot-acme waits."),
     ("budget.max 8", "budget.max 8."), ("Done!", "Done!"), ("", ""),
     (None, "")],
)  # fmt: skip
def test_sentences_begin_and_end_well_and_leave_names_alone(text: str | None, said: str):
    assert words.sentence(text) == said


def test_reasons_are_read_as_words():
    assert words.spaced("ThrashNotSaturation") == "Thrash not saturation"
    assert words.spaced("SloMissed") == "SLO missed"


@given(st.text())
def test_nothing_from_outside_becomes_markup(text: str):
    for html in (tag(text), prose(text), _cell(text, ""), unknown(text).html):
        inner = html
        for own in ("<code>", "</code>", "</span>", '<td class="">', "</td>"):
            inner = inner.replace(own, "")
        inner = inner.split(">", 1)[-1] if inner.startswith("<span") else inner
        assert "<" not in inner


def test_a_cell_keeps_its_own_html():
    assert _cell(Cell("<b>1</b>", "num"), "keep") == '<td class="keep num"><b>1</b></td>'

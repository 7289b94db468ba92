"""Counters over restarts, births and silence: what is told is what happened."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.connectors.metrics.router_counters import RouterCounters
from autoscaler.connectors.metrics.router_presets import ENVOY

NAMES = ("a", "b", "c")
# Each scrape: what every adapter got since the last one, and whether the router restarted before it got that.
SCRAPES = st.lists(
    st.tuples(st.lists(st.integers(0, 50), min_size=3, max_size=3), st.booleans()), min_size=2, max_size=8
)


def page(counts: list[int], seen: list[bool]) -> str:
    lines = [
        f'envoy_llm_requests{{adapter="{n}",upstream="u"}} {c}'
        for n, c, s in zip(NAMES, counts, seen, strict=True)
        if s
    ]
    return "\n".join(lines)


@given(SCRAPES)
def test_growth_is_what_happened_after_the_first_page(scrapes: list[tuple[list[int], bool]]) -> None:
    counters = RouterCounters(ENVOY, 1000.0, 1000.0)
    counts, seen, happened = [0, 0, 0], [False] * 3, np.zeros(3)
    for i, (got, restarted) in enumerate(scrapes):
        if restarted and i:
            # A counter that restarts and passes its old value within one scrape cannot be told from one that grew.
            got = [min(g, c - 1) if c else g for g, c in zip(got, counts, strict=True)]
            got = [max(g, 0) for g in got]
            counts = [0, 0, 0]
        counts = [c + g for c, g in zip(counts, got, strict=True)]
        seen = [s or g > 0 for s, g in zip(seen, got, strict=True)]
        counters.read("envoy", page(counts, seen), 10.0 * i)
        happened += got if i else [0, 0, 0]
    rates = counters.rates(10.0 * (len(scrapes) - 1))
    assert rates is not None
    told = dict(zip(rates.adapters, rates.requests_per_s * rates.window_s, strict=True))
    for name, number in zip(NAMES, happened, strict=True):
        np.testing.assert_allclose(told.get(name, 0.0), number)


def test_the_window_moves_on() -> None:
    counters = RouterCounters(ENVOY, 30.0, 60.0)
    for i, count in enumerate((0, 100, 100, 100, 100, 103)):
        counters.read("envoy", page([count, 0, 0], [True, False, False]), 10.0 * i)
    rates = counters.rates(50.0)
    assert rates is not None
    assert (rates.window_s, rates.requests_per_s.tolist()) == (30.0, [0.1])


def test_two_routers_add_up_and_one_that_is_too_old_does_not_count() -> None:
    counters = RouterCounters(ENVOY, 60.0, 30.0)
    for at_s, count in ((0.0, 0), (10.0, 20)):
        counters.read("one", page([count, 0, 0], [True, False, False]), at_s)
        counters.read("two", page([count, 0, 0], [True, False, False]), at_s)
    both = counters.rates(10.0)
    assert both is not None
    assert both.requests_per_s.tolist() == [4.0]
    counters.read("one", page([40, 0, 0], [True, False, False]), 50.0)
    alone = counters.rates(50.0)
    assert alone is not None
    assert alone.requests_per_s.tolist() == [0.8]
    assert counters.rates(200.0) is None


def test_a_router_that_is_gone_from_the_settings_is_forgotten() -> None:
    counters = RouterCounters(ENVOY, 60.0, 60.0)
    for at_s in (0.0, 10.0):
        counters.read("one", page([1, 0, 0], [True, False, False]), at_s)
    counters.forget(["two"])
    assert counters.rates(10.0) is None

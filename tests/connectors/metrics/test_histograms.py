"""Quantiles as PromQL has them, and shares beyond a limit, for many histograms at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.connectors.metrics.histograms import beyond, quantiles

INF = float("inf")


def quantile(edges: list[float], cumulative: list[float], q: float) -> float:
    return float(quantiles(np.array(edges), np.array([cumulative]), q)[0])


def test_a_quantile_is_linear_within_its_bucket() -> None:
    assert quantile([1.0, 2.0, INF], [10.0, 20.0, 20.0], 0.75) == 1.5
    assert quantile([1.0, 2.0, INF], [10.0, 20.0, 20.0], 0.25) == 0.5


def test_nothing_observed_is_nan_and_not_zero() -> None:
    assert np.isnan(quantile([1.0, INF], [0.0, 0.0], 0.99))


def test_beyond_the_last_edge_the_last_edge_is_said() -> None:
    assert quantile([1.0, 2.0, INF], [0.0, 0.0, 5.0], 0.99) == 2.0


def test_a_torn_scrape_is_mended() -> None:
    assert quantile([1.0, 2.0, INF], [10.0, 8.0, 20.0], 0.25) == 0.5


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=4, max_size=4), min_size=1, max_size=20),
    st.floats(0.01, 0.999),
)
def test_each_row_is_as_if_it_were_alone_within_the_edges_and_monotone(rows: list[list[int]], q: float) -> None:
    edges = np.array([0.1, 1.0, 5.0, INF])
    cumulative = np.cumsum(np.array(rows, float), axis=1)
    together = quantiles(edges, cumulative, q)
    higher = quantiles(edges, cumulative, min(1.0, q + 0.1))
    for i, one in enumerate(together):
        np.testing.assert_equal(one, quantile(list(edges), list(cumulative[i]), q))
        if cumulative[i, -1] == 0:
            assert np.isnan(one)
        else:
            assert 0 <= one <= 5.0
            assert higher[i] >= one - 1e-12


def share_beyond(edges: list[float], cumulative: list[float], limit: float) -> float:
    return float(beyond(np.array(edges), np.array([cumulative]), limit)[0])


def test_the_share_beyond_a_limit_is_linear_within_its_bucket() -> None:
    for limit, late in ((1.0, 0.10), (1.75, 0.06), (2.5, 0.02), (0.5, 0.55), (0.0, 1.0)):
        assert share_beyond([1.0, 2.5, INF], [90.0, 98.0, 100.0], limit) == pytest.approx(late)


def test_beyond_the_highest_finite_edge_all_that_is_there_is_late() -> None:
    assert share_beyond([1.0, 2.5, INF], [90.0, 98.0, 100.0], 60.0) == pytest.approx(0.02)


def test_of_nothing_no_share_is_late_nor_in_time() -> None:
    assert np.isnan(share_beyond([1.0, INF], [0.0, 0.0], 0.5))


@given(st.lists(st.integers(1, 50), min_size=3, max_size=3), st.floats(0.01, 0.999))
def test_beyond_a_quantile_lies_what_it_leaves(counts: list[int], q: float) -> None:
    edges, cumulative = [0.1, 1.0, 5.0, INF], [*np.cumsum(counts).astype(float), float(sum(counts))]
    assert share_beyond(edges, cumulative, quantile(edges, cumulative, q)) == pytest.approx(1.0 - q)

"""The text format, hostile label values included."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from autoscaler.connectors.metrics.exposition import Wanted, labels_of, metric_names, series_parts
from autoscaler.connectors.metrics.router_counters import RouterCounters
from autoscaler.connectors.metrics.router_presets import ENVOY

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.lists(TEXT, min_size=1, max_size=5, unique=True))
def test_any_label_value_comes_back_as_it_was_written(values: list[str]) -> None:
    registry = CollectorRegistry()
    counter = Counter("requests", "doc", ["adapter", "le_role"], registry=registry)
    for i, value in enumerate(values):
        counter.labels(value, value).inc(i + 1)
    page = generate_latest(registry).decode()
    found = {}
    for series, number in Wanted(["requests_total"]).samples(page):
        name, text = series_parts(series)
        assert name == "requests_total"
        labels = labels_of(text)
        assert labels["le_role"] == labels["adapter"]
        found[labels["adapter"]] = number
    assert found == {value: i + 1.0 for i, value in enumerate(values)}


def test_only_wanted_lines_are_read_and_broken_ones_left_out() -> None:
    page = '# TYPE a counter\na 1\na_more 2\na{x="1"} 3 1700000000\na{x="2"} oops\na{x="3"} +Inf\n a 9\nba 4\na'
    assert Wanted(["a"]).samples(page) == [("a", 1.0), ('a{x="1"}', 3.0), ('a{x="3"}', float("inf"))]
    assert metric_names(page) == {"a", "a_more", "ba"}


@pytest.mark.parametrize("name", ["plain", 'le="5",', ",le=", 'x",le="1', "{}", "a\\", "\n", "\u2028", "module="])
def test_a_hostile_adapter_name_does_not_disturb_its_histogram(name: str) -> None:
    registry = CollectorRegistry()
    histogram = Histogram("envoy_llm_ttft_ms", "doc", ["adapter"], registry=registry, buckets=[10, 100])
    requests = Counter("envoy_llm_requests", "doc", ["adapter"], registry=registry)
    counters = RouterCounters(ENVOY, 60.0, 60.0)
    for at_s in (0.0, 10.0):
        page = generate_latest(registry).decode().replace("envoy_llm_requests_total", "envoy_llm_requests")
        counters.read("envoy", page, at_s)
        histogram.labels(name).observe(50.0)
        requests.labels(name).inc()
    rates = counters.rates(10.0)
    assert rates is not None
    assert dict(zip(rates.adapters, rates.requests_per_s, strict=True)) == {name: 0.1}
    rows = np.zeros(1, np.int64)
    np.testing.assert_allclose(counters.ttft_quantile(10.0, rows, 1, 0.5), [0.055])

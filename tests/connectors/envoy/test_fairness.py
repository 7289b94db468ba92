"""The limits of tenants as Envoy's configuration: whom they name, and what they say."""

import json
from typing import Any

from envoy.config.core.v3 import extension_pb2
from google.protobuf import json_format

from autoscaler.connectors.envoy import xds
from autoscaler.connectors.envoy.fairness import limits
from autoscaler.ring.snapshot import Fairness, HotGroup, Member, MemberState, RingSnapshot

MEMBERS = (Member("r0", "10.0.0.1:8000", slot="s0000"),)
NAMES = ("acme-1", "acme-2", "alone", "base", "hot-down", "hot-up")


def snapshot(**fairness: Any) -> RingSnapshot:
    hot = {
        "hot-up": HotGroup("hot-up", (Member("h0", "10.0.0.2:8000"),)),
        "hot-down": HotGroup("hot-down", (Member("h1", "10.0.0.3:8000", MemberState.DRAINING),)),
    }
    bound = Fairness(**fairness) if fairness else None
    return RingSnapshot("f", 1, "2026-11-29T12:00:00Z", 1, MEMBERS, hot=hot, base_models=("base",), fairness=bound)


def matcher(ring: RingSnapshot, names: tuple[str, ...] = NAMES) -> Any:
    return limits(ring, names)["typed_config"]["xds_matcher"]


def listed(found: Any) -> list[list[str]]:
    """The adapters of each tenant of several."""
    return [
        [p["single_predicate"]["value_match"]["exact"] for p in m["predicate"]["or_matcher"]["predicate"]]
        for m in found["matcher_list"]["matchers"]
    ]


def test_without_a_bound_nobody_is_matched():
    assert matcher(snapshot()) == {}


def test_every_name_but_a_dedicated_groups_has_the_limit_of_its_tenant():
    tenants = {"acme-1": "acme", "acme-2": "acme", "gone": "acme"}
    found = matcher(snapshot(max_in_flight=7, retry_after_ms=1, tenants=tenants))
    assert listed(found) == [["acme-1", "acme-2"]]
    single = found["on_no_match"]["matcher"]["matcher_tree"]["exact_match_map"]["map"]
    assert set(single) == {"alone", "base", "hot-down"}, "a group that does not serve leaves its adapter on the ring"


def test_a_tenant_of_whom_one_adapter_is_there_needs_no_list():
    found = matcher(snapshot(max_in_flight=7, retry_after_ms=1, tenants={"alone": "acme", "gone": "acme"}), ("alone",))
    assert set(found["matcher_tree"]["exact_match_map"]["map"]) == {"alone"}


def test_the_limit_cannot_adapt_and_tells_whole_seconds():
    for ms, seconds in ((0, "1"), (1000, "1"), (1001, "2")):
        text = json.dumps(matcher(snapshot(max_in_flight=7, retry_after_ms=ms), ("alone",)))
        assert '"max_concurrency_limit": 7' in text
        assert '"min_concurrency": 7' in text
        assert f'"retry_after": "{seconds}"' in text


def test_the_copied_resource_is_what_the_parser_would_have_made():
    for tenants in ({}, {"acme-1": "acme", "acme-2": "acme"}, dict.fromkeys(NAMES, "all")):
        for ring in (snapshot(), snapshot(max_in_flight=7, retry_after_ms=1500, tenants=tenants)):
            value = limits(ring, NAMES)
            whole = json_format.ParseDict(
                {k: v for k, v in value.items() if k != "@type"}, extension_pb2.TypedExtensionConfig()
            )
            made = extension_pb2.TypedExtensionConfig.FromString(xds._filter(value))
            assert json_format.MessageToDict(made) == json_format.MessageToDict(whole)

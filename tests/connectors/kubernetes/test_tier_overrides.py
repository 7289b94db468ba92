"""TierOverride objects as overrides: which one counts, until when, and what its revision says."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.connectors.kubernetes.readings import seconds
from autoscaler.connectors.kubernetes.tier_overrides import (
    in_order,
    made_elsewhere,
    object_name,
    read,
    revision_of,
    time_text,
)
from autoscaler.domain.fleet import LONGEST_OVERRIDE_S, Tier

MADE = "2026-11-29T12:00:00Z"


def made(
    name: str = "a", tenant: str = "acme", expires: str = "2026-11-30T12:00:00Z", set_at: str = MADE, **meta: Any
) -> dict[str, Any]:
    fields = [{"manager": meta.pop("manager", "kubectl"), "time": set_at, "fieldsV1": {"f:spec": {}}}]
    status = {"manager": "lora-autoscaler", "time": "2030-01-01T00:00:00Z", "subresource": "status"}
    spec = {"fleet": "chat", "tenant": tenant, "tier": "hot", "reason": "launch", "actor": "ann", "expiresAt": expires}
    return {
        "metadata": {
            "name": name, "uid": f"uid-{name}", "creationTimestamp": MADE, "generation": 1,
            "managedFields": [*fields, {**status, "fieldsV1": {"f:spec": {}}}], **meta,
        },
        "spec": spec,
    }  # fmt: skip


def test_one_is_read_as_an_override() -> None:
    found = read(made())
    assert (found.tenant, found.tier, found.reason, found.actor) == ("acme", Tier.HOT, "launch", "ann")
    assert found.created_at_s == seconds(MADE)
    assert found.expires_at_s == seconds("2026-11-30T12:00:00Z")


def test_one_that_would_last_too_long_ends_so_long_after_it_was_set() -> None:
    late = "2026-12-01T00:00:00Z"
    assert read(made(expires="2100-01-01T00:00:00Z", set_at=late)).expires_at_s == seconds(late) + LONGEST_OVERRIDE_S


def test_the_one_that_was_set_last_is_the_last_and_other_fleets_are_left_out() -> None:
    other = made("other")
    other["spec"]["fleet"] = "code"
    first, second = made("z"), made("b", set_at="2026-11-29T12:00:01Z")
    assert [o["metadata"]["name"] for o in in_order([second, other, first], "chat")] == ["z", "b"]


def test_a_status_that_we_wrote_is_not_the_spec() -> None:
    assert made_elsewhere(made())
    assert not made_elsewhere(made(manager="lora-autoscaler"))


def test_a_revision_grows_with_each_change_and_with_each_new_object() -> None:
    changed = made(generation=2)
    again = made("b", creationTimestamp="2026-11-29T12:00:01Z")
    assert revision_of(made()) < revision_of(changed) < revision_of(again) < 2**53
    assert revision_of(made("c")) != revision_of(made())


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_names_are_names_and_different_for_different_tenants(one: str, other: str) -> None:
    name = object_name("chat", one)
    assert len(name) <= 253
    assert all(c.isascii() and (c.isalnum() or c == "-") for c in name)
    assert name == name.lower().strip("-")
    assert (one == other) == (name == object_name("chat", other))


def test_times_are_rounded_up_so_that_nothing_ends_early() -> None:
    assert time_text(seconds(MADE) + 0.2) == "2026-11-29T12:00:01Z"
    assert time_text(seconds(MADE)) == MADE

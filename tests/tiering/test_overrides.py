"""Overrides win until they expire, and what they displaced comes back."""

import json

from autoscaler.domain.decisions import Reason
from autoscaler.domain.fleet import Tier
from autoscaler.tiering import TieringMemory
from tests.tiering.building import HOUR, NOW, Fleet, decide, load, override, policy


def test_an_override_wins_over_load_pins_and_promises():
    told = policy(dedicated=["t"], pins={"t": Tier.HOT})
    got = decide(load(20_000.0), told, overrides=[override("t", Tier.COLD)])
    assert (got.after, got.reason) == (Tier.COLD, Reason.OVERRIDE)
    assert got.override_expires_at_s == NOW + HOUR
    assert got.trail[-1].message == "asked for by alice (launch day); it ends in 59.5 min, then warm comes back"


def test_its_end_brings_back_what_it_displaced():
    fleet = Fleet()
    fleet.tick({"t": load(15_000.0)})
    began = fleet.plan.explain("t").since_s
    word = [override("t", Tier.COLD, NOW + 600)]
    for _ in range(3):
        assert fleet.tick({"t": load(15_000.0)}, overrides=word).explain("t").after is Tier.COLD
    got = fleet.tick({"t": load(15_000.0)}, 900.0, overrides=word).explain("t")
    assert (got.before, got.after, got.reason) == (Tier.COLD, Tier.HOT, Reason.OVERRIDE_EXPIRED)
    assert got.since_s == began
    assert fleet.memory.displaced == {}
    assert fleet.tick({"t": load(15_000.0)}).explain("t").reason is Reason.FORECAST_HOT


def test_clearing_it_is_its_end_too():
    fleet = Fleet()
    fleet.tick({"t": load(300.0)})
    fleet.tick({"t": load(300.0)}, overrides=[override("t", Tier.HOT)])
    got = fleet.tick({"t": load(300.0)}).explain("t")
    assert (got.before, got.after, got.reason) == (Tier.HOT, Tier.WARM, Reason.OVERRIDE_EXPIRED)


def test_a_second_override_keeps_what_the_first_displaced():
    fleet = Fleet()
    fleet.tick({"t": load(300.0)})
    fleet.tick({"t": load(300.0)}, overrides=[override("t", Tier.HOT)])
    fleet.tick({"t": load(300.0)}, overrides=[override("t", Tier.COLD, revision=2)])
    assert fleet.tick({"t": load(300.0)}).explain("t").after is Tier.WARM


def test_the_displaced_tier_survives_a_restart():
    fleet = Fleet()
    fleet.tick({"t": load(15_000.0)})
    fleet.tick({"t": load(15_000.0)}, overrides=[override("t", Tier.COLD)])
    fleet.memory = TieringMemory.from_json(json.loads(json.dumps(fleet.memory.to_json())))
    assert fleet.tick({"t": load(15_000.0)}).explain("t").after is Tier.HOT


def test_an_override_of_a_tenant_that_does_not_exist_does_nothing():
    assert decide({}, overrides=[override("ghost", Tier.HOT)]).reason is Reason.IN_BAND


def test_an_override_of_a_new_tenant_displaces_warm():
    fleet = Fleet()
    fleet.tick({"t": {}}, overrides=[override("t", Tier.HOT)])
    assert fleet.tick({"t": {}}).explain("t").after is Tier.WARM


def test_no_word_makes_a_group_that_the_policy_does_not_have():
    got = decide({}, policy(hot=None), overrides=[override("t", Tier.HOT)])
    assert (got.after, got.reason) == (Tier.WARM, Reason.HOT_GROUPS_FULL)


def test_a_cold_override_lasts_although_there_is_traffic():
    fleet = Fleet()
    fleet.tick({"t": load(300.0)})
    word = [override("t", Tier.COLD)]
    assert fleet.ticks({"t": load(300.0)}, for_s=0.9 * HOUR, overrides=word).explain("t").after is Tier.COLD

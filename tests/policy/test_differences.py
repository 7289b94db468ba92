"""What differs between two policies, and what that changes."""

from dataclasses import replace

from autoscaler.domain.fleet import Tier
from autoscaler.policy.differences import Change, diff
from autoscaler.policy.groups import Adapters, CatalogueEntry, ColdGroup, Groups
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.steps import Ring, Scaling, Slo, TenantSlo, Tiering
from autoscaler.policy.words import Isolation, Mode

BASE = FleetPolicy(name="x", base_model="base")


def test_equal_policies_do_not_differ() -> None:
    assert diff(BASE, FleetPolicy(name="x", base_model="base")) == ()


def test_a_changed_key_is_one_change_in_the_files_words() -> None:
    new = replace(BASE, mode=Mode.ENFORCE, scaling=Scaling(startup_s=90), ring=Ring(replication=3))
    assert diff(BASE, new) == (
        Change("spec.mode", "advise", "enforce", "whether plans are carried out"),
        Change("spec.scaling.startup", "3m", "90s", "when groups grow and shrink"),
        Change(
            "spec.ring.replication",
            "auto",
            3,
            "owners per adapter; more: more residents per replica, and moves when it changes",
        ),
    )


def test_tables_and_adapters_are_matched_by_name() -> None:
    one, two, three = (CatalogueEntry(id=i, source=f"/{i}") for i in "abc")
    old = replace(BASE, adapters=Adapters(list=(one, two)), slo=Slo(tenants={"acme": TenantSlo(), "zeta": TenantSlo()}))
    new = replace(
        BASE,
        adapters=Adapters(list=(three, replace(one, revision="r2"))),
        slo=Slo(tenants={"acme": TenantSlo(isolation=Isolation.DEDICATED), "a.b": TenantSlo()}),
        tiering=Tiering(pins={"acme": Tier.HOT}),
    )
    found = {change.path: (change.old, change.new) for change in diff(old, new)}
    entry = {"tenant": "", "rank": 0, "revision": ""}
    promise = {"ttft": "auto", "objective": "auto", "isolation": "shared"}
    assert found == {
        "spec.adapters.list.a.revision": ("", "r2"),
        "spec.adapters.list.b": ({"id": "b", "source": "/b"} | entry, None),
        "spec.adapters.list.c": (None, {"id": "c", "source": "/c"} | entry),
        "spec.slo.tenants.acme.isolation": ("shared", "dedicated"),
        "spec.slo.tenants.zeta": (promise, None),
        'spec.slo.tenants["a.b"]': (None, promise),
        "spec.tiering.pins.acme": (None, "hot"),
    }


def test_a_group_that_appears_is_one_change() -> None:
    (change,) = diff(BASE, replace(BASE, groups=Groups(cold=ColdGroup())))
    assert (change.path, change.old) == ("spec.groups.cold", "none")
    assert change.new["idleAfter"] == "15m"


def test_another_name_is_another_fleet() -> None:
    (change,) = diff(BASE, replace(BASE, name="y"))
    assert (change.path, change.effect) == ("metadata.name", "another fleet altogether")

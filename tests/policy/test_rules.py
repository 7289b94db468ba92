"""What no single key can be blamed for."""

import pytest

from autoscaler.domain.fleet import Tier
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.policy.loading import parse_policies, parse_policy
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.nodes import PolicyError

HEAD = "apiVersion: lora-autoscaler.io/v1alpha1\nkind: FleetPolicy\nmetadata: {name: x}\nspec:\n  baseModel: base\n"
DEDICATED = "slo: {tenants: {acme: {isolation: dedicated}, zeta: {isolation: dedicated}}}\n"


def parsed(text: str) -> FleetPolicy | tuple[PolicyError, ...]:
    return parse_policy(HEAD + "".join(f"  {line}\n" for line in text.splitlines()), "x.yaml")


def schedules(*entries: str) -> str:
    return "groups:\n  warm:\n    schedules:\n" + "".join(f"    - {{{entry}}}\n" for entry in entries)


BROKEN = {
    "min over max": (
        "groups: {warm: {minReplicas: 9, maxReplicas: 3}}",
        "spec.groups.warm.minReplicas",
        "at most 3",
        "minReplicas 9 is above maxReplicas 3",
    ),
    "min over the default max": (
        "groups: {cold: {minReplicas: 9}}",
        "spec.groups.cold.minReplicas",
        "at most 2",
        "minReplicas 9 is above maxReplicas 2",
    ),
    "scheduled min over the group's max": (
        schedules('from: "08:00", to: "09:00", minReplicas: 20'),
        "spec.groups.warm.schedules[0]",
        "at most 16",
        "minReplicas 20 is above maxReplicas 16 meanwhile",
    ),
    "ring scheduled to zero": (
        schedules('from: "08:00", to: "09:00", minReplicas: 0'),
        "spec.groups.warm.schedules[0]",
        "at least 1",
        "the warm group may not go to 0",
    ),
    "overlap on one day": (
        schedules('from: "08:00", to: "12:00"', 'from: "11:59", to: "13:00", days: [fri]'),
        "spec.groups.warm.schedules[1]",
        "schedules that do not overlap",
        "schedules 0 and 1 of the groups.warm group overlap, first on Fri 08 Jan 11:59 UTC",
    ),
    "overlap past midnight": (
        schedules('from: "22:00", to: "06:00", days: [sun]', 'from: "05:00", to: "07:00", days: [mon]'),
        "spec.groups.warm.schedules[1]",
        "schedules that do not overlap",
        "first on Mon",
    ),
    "overlap between time zones": (
        schedules(
            'from: "08:00", to: "10:00", timeZone: Europe/Berlin',
            'from: "02:30", to: "03:30", timeZone: America/New_York',
        ),
        "spec.groups.warm.schedules[1]",
        "schedules that do not overlap",
        "first on Mon 04 Jan 07:30 UTC",
    ),
    "overlap only while summer times differ": (
        schedules(
            'from: "08:00", to: "09:00", timeZone: Europe/Berlin',
            'from: "03:00", to: "04:00", timeZone: America/New_York',
        ),
        "spec.groups.warm.schedules[1]",
        "schedules that do not overlap",
        "first on Sun 14 Mar",
    ),
    "unknown time zone": (
        schedules('from: "08:00", to: "10:00", timeZone: Europe/Berlinn'),
        "spec.groups.warm.schedules[0].timeZone",
        "an IANA time zone",
        "there is no time zone `Europe/Berlinn`",
    ),
    "folder of time zones": (
        schedules('from: "08:00", to: "10:00", timeZone: America'),
        "spec.groups.warm.schedules[0].timeZone",
        "an IANA time zone",
        "there is no time zone `America`",
    ),
    "begins at 24:00": (
        schedules('from: "24:00", to: "10:00"'),
        "spec.groups.warm.schedules[0].from",
        '"00:00" to "23:59"',
        "of the next day",
    ),
    "kv target that the tolerance puts out of reach": (
        "scaling: {kvUsage: 0.95}",
        "spec.scaling.kvUsage",
        "at most 0.909",
        "is passed only above 1.045, but the gauge ends at 1: it would never scale out",
    ),
    "queue target over a whole batch": (
        "scaling: {queuePerReplica: 60}\nengine: {limits: {maxNumSeqs: 64}}",
        "spec.scaling.queuePerReplica",
        "at most 58.1",
        "queuePerReplica 60 is out of reach where a replica runs 64 requests (maxNumSeqs)",
    ),
    "queue target over the group's own batch": (
        "scaling: {queuePerReplica: 9}\ngroups: {warm: {limits: {maxNumSeqs: 8}}}",
        "spec.scaling.queuePerReplica",
        "at most 7.2",
        "runs 8 requests",
    ),
    "queue target over the cold group's batch": (
        "scaling: {queuePerReplica: 9}\ngroups: {cold: {limits: {maxNumSeqs: 8}}}",
        "spec.scaling.queuePerReplica",
        "at most 7.2",
        "runs 8 requests",
    ),
    "pins over the total": (
        "tiering: {pins: {a: hot, b: hot}}\nbudget: {maxReplicasTotal: 3}",
        "spec.budget.maxReplicasTotal",
        "at least 4",
        "need 4 replicas",
    ),
    "host memory below adapter slots": (
        "engine: {limits: {maxLoras: 16, maxCpuLoras: 8}}",
        "spec.engine.limits.maxCpuLoras",
        "at least 16",
        "maxCpuLoras 8 is below maxLoras 16",
    ),
    "overflow without a resolver": (
        "ring: {overflow: any}",
        "spec.ring.overflow",
        "owners or standbys",
        "engines without a resolver answer 404",
    ),
    "no standbys to overflow to": (
        "ring: {standbyCount: 0}",
        "spec.ring.standbyCount",
        "at least 1",
        "standbyCount is 0",
    ),
    "more owners than replicas": (
        "ring: {replication: 17}",
        "spec.ring.replication",
        "at most 16",
        "17 owners per adapter are out of reach",
    ),
    "isolation without hot groups": (
        "slo: {tenants: {acme: {isolation: dedicated}}}\ngroups: {hot: none}",
        "spec.slo.tenants.acme.isolation",
        "warm or cold, or hot groups",
        "tenant `acme` needs a hot group, but `groups.hot` is none",
    ),
    "pinned against a promise": (
        "slo: {tenants: {acme: {isolation: dedicated}}}\ntiering: {pins: {acme: cold}}",
        "spec.tiering.pins.acme",
        "hot",
        "pinned to cold, but `slo` promises it replicas of its own",
    ),
    "more promises than groups": (
        DEDICATED + "groups: {hot: {maxGroups: 1}}",
        "spec.groups.hot.maxGroups",
        "at least 2",
        "2 tenants are pinned hot or were promised isolation, but maxGroups is 1",
    ),
    "minimums over the total": (
        DEDICATED + "budget: {maxReplicasTotal: 3}",
        "spec.budget.maxReplicasTotal",
        "at least 4",
        "need 4 replicas, but maxReplicasTotal is 3",
    ),
    "too few declared targets": (
        "groups: {hot: {source: declared, targets: [{name: a}], maxGroups: 2}}",
        "spec.groups.hot.targets",
        "at least 2",
        "only 1 targets are declared",
    ),
    "declared twice": (
        "groups: {hot: {source: declared, targets: [{name: a}, {name: a}], maxGroups: 2}}",
        "spec.groups.hot.targets[1].name",
        "a name of its own",
        "each holds one tenant",
    ),
    "promotion beyond a group's size": (
        "tiering: {hotThreshold: 9}",
        "spec.tiering.hotThreshold",
        "at most 8",
        "a hot group ends at 8",
    ),
    "merged without a place": (
        "groups: {hot: {mergedCheckpoints: {allowed: true}}}",
        "spec.groups.hot.mergedCheckpoints.pathTemplate",
        "a path with {id}",
        "does not say where they lie",
    ),
    "template without id": (
        "adapters: {pathTemplate: /adapters}",
        "spec.adapters.pathTemplate",
        "a path with {id}",
        "must contain {id}",
    ),
    "two catalogues": (
        "adapters: {file: a.yaml, configMap: b}",
        "spec.adapters",
        "one of list, file, configMap",
        "comes from file and configMap",
    ),
    "custom engine without queries": (
        "engine: {preset: custom}",
        "spec.signals.queries",
        "PromQL for `waiting`",
        "give at least `signals.queries.waiting`",
    ),
    "horizon between buckets": (
        "forecast: {horizons: [10m, 31m, 1h]}",
        "spec.forecast.horizons[1]",
        "a multiple of forecast.bucket",
        "no multiple of bucket 10m",
    ),
    "horizons that descend": (
        "forecast: {horizons: [1h, 10m]}",
        "spec.forecast.horizons",
        "ascending durations",
        "must be ascending",
    ),
    "look-ahead beyond what is learnt": (
        "scaling: {scaleIn: {horizon: 2h}}",
        "spec.scaling.scaleIn.horizon",
        "at most 1h",
        "it looks 2h ahead, but the last of forecast.horizons is 1h",
    ),
    "adapter with a rank that no engine loads": (
        "engine: {limits: {maxLoraRank: 16}}\nadapters: {list: [{id: a, source: /a, rank: 64}]}",
        "spec.adapters.list[0].rank",
        "at most 16",
        "rank 64 is over `maxLoraRank` 16",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_keys_that_contradict_each_other_are_one_error_that_says_why(name: str) -> None:
    text, path, allowed, message = BROKEN[name]
    found = parsed(text)
    assert isinstance(found, tuple), "this policy should have been refused"
    assert [(e.path, e.allowed) for e in found] == [(path, allowed)], [str(e) for e in found]
    assert message in found[0].message
    assert found[0].line is not None


FINE = {
    "adjacent schedules": schedules('from: "08:00", to: "12:00"', 'from: "12:00", to: "08:00"'),
    "same hours on other days": schedules(
        'from: "08:00", to: "12:00", days: [mon]', 'from: "08:00", to: "12:00", days: [tue]'
    ),
    "same wall time far apart": schedules(
        'from: "08:00", to: "12:00", timeZone: Europe/Berlin', 'from: "08:00", to: "12:00", timeZone: Asia/Tokyo'
    ),
    "whole day": schedules('from: "00:00", to: "24:00"'),
    "horizons in fractions": "forecast: {bucket: 1100ms, horizons: [3300ms, 1h6m], horizon: 3300ms}",
    "kv target within the tolerance": "scaling: {kvUsage: 0.9}",
    "overflow with a resolver": "ring: {overflow: any}\nengine: {resolver: true}",
    "pinned cold without a cold group": "tiering: {pins: {acme: cold}}",
    "no hot groups and a high threshold": "tiering: {hotThreshold: 9}\ngroups: {hot: none}",
}


@pytest.mark.parametrize("name", FINE)
def test_what_is_odd_but_means_something_is_taken(name: str) -> None:
    found = parsed(FINE[name])
    assert isinstance(found, FleetPolicy), [str(e) for e in found]


def test_a_rule_stays_silent_where_one_of_its_keys_is_wrong_already() -> None:
    found = parsed("groups: {warm: {minReplicas: 20, maxReplicas: many}}")
    assert isinstance(found, tuple)
    assert [e.path for e in found] == ["spec.groups.warm.maxReplicas"]


def test_a_folder_of_policies_keeps_the_good_ones_and_names_the_others() -> None:
    def fleet(name: str, extra: str = "") -> str:
        return HEAD.replace("name: x", f"name: {name}") + extra

    same_target = "  groups: {warm: {target: {name: a-warm}}}\n"
    folder = parse_policies(
        {
            "1.yaml": fleet("a"),
            "2.yaml": fleet("a"),
            "3.yaml": fleet("b", same_target),
            "4.yaml": "",
            "5.yaml": fleet("c"),
        }
    )
    assert list(folder.policies) == ["1.yaml", "5.yaml"]
    assert {file: [e.path for e in errors] for file, errors in folder.errors.items()} == {
        "2.yaml": ["metadata.name", "spec.groups.warm"],
        "3.yaml": ["spec.groups.warm"],
        "4.yaml": [""],
    }
    assert folder.errors["2.yaml"][0].message.startswith("fleet a is already claimed by 1.yaml")
    assert folder.errors["3.yaml"][0].message.startswith("Deployment a-warm is already claimed by 1.yaml")


@pytest.mark.parametrize(
    ("text", "warm", "cold"),
    [
        ("groups: {cold: {}}", 0.85, 0.5),
        ("ring: {overflow: any}\nengine: {resolver: true}\ngroups: {cold: {fill: 0.95}}", 0.9, 0.9),
        ("ring: {overflow: any}\nengine: {resolver: true}\nscaling: {utilisation: 0.7}", 0.7, 0.7),
        ("scaling: {utilisation: auto}", 0.85, 0.85),
    ],
)
def test_a_replica_is_filled_to_what_its_routers_can_bound(text, warm, cold):
    policy = parsed(text)
    assert (policy.utilisation(), policy.utilisation(Tier.COLD)) == (warm, cold)
    assert policy.usable(Fresh(1000.0), Tier.COLD) == Fresh(1000.0 * cold)
    assert policy.usable(Missing("never seen")) == Missing("never seen")

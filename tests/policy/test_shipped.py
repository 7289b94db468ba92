"""The shipped policies, the reference page and the schema are what the code says."""

import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from autoscaler.domain.fleet import EngineLimits, Tier
from autoscaler.policy.exports import default_file, json_schema, reference_page, schema_text
from autoscaler.policy.fields import keys, sections
from autoscaler.policy.loading import parse_policies, parse_policy
from autoscaler.policy.model import FleetPolicy, PolicyDocument
from autoscaler.policy.words import Isolation, Mode, Overflow

ROOT = Path(__file__).resolve().parents[2]
POLICIES = sorted((ROOT / "policies").glob("*.yaml"))
SCHEMA = jsonschema.Draft202012Validator(json_schema())


def shipped(name: str) -> FleetPolicy:
    policy = parse_policy((ROOT / "policies" / name).read_bytes(), name)
    assert isinstance(policy, FleetPolicy), [str(e) for e in policy]
    return policy


def test_all_shipped_policies_pass_the_check_side_by_side() -> None:
    assert {path.name for path in POLICIES} >= {
        "default.yaml",
        "local.yaml",
        "strict-isolation.yaml",
        "cost-first.yaml",
    }
    folder = parse_policies({path.name: path.read_bytes() for path in POLICIES})
    assert folder.errors == {}


@pytest.mark.parametrize("path", POLICIES, ids=lambda p: p.name)
def test_a_shipped_policy_satisfies_the_schema(path: Path) -> None:
    assert [e.message for e in SCHEMA.iter_errors(yaml.safe_load(path.read_text()))] == []


def test_the_default_file_says_nothing_but_the_defaults() -> None:
    assert shipped("default.yaml") == FleetPolicy(name="example", base_model="llama-3.1-8b")


def test_the_default_file_and_the_reference_page_are_as_the_code_makes_them() -> None:
    made = {"policies/default.yaml": default_file(), "docs/reference/policy.md": reference_page()}
    stale = [name for name, text in made.items() if (ROOT / name).read_text() != text]
    assert stale == [], "write them anew from autoscaler.policy.exports: default_file(), reference_page()"


def test_every_key_is_in_the_default_file_and_on_the_page_with_its_meaning() -> None:
    default, page = default_file(), reference_page()
    for of in sections(PolicyDocument):
        for item in keys(of):
            assert re.search(rf"^[ #-]*{item.name}:", default, re.MULTILINE), item.name
            assert f"| `{item.name}` |" in page
            assert item.about.rstrip("`)").endswith((".", '"')), f"{item.name}: {item.about}"


def test_defaults_are_what_the_field_agrees_on() -> None:
    policy = shipped("default.yaml")
    assert policy.mode is Mode.ADVISE
    assert policy.tick_interval_s == 15
    scaling, ring = policy.scaling, policy.ring
    assert (scaling.queue_per_replica, scaling.kv_usage_ratio, scaling.tolerance_ratio) == (5, 0.8, 0.1)
    assert (scaling.scale_in.stabilisation_s, scaling.scale_in.max_step_replicas) == (300, 1)
    assert (ring.load_bound_ratio, ring.request_bound_percent, ring.request_floor) == (1.25, 125, 4)
    assert (ring.replication, ring.overflow, ring.standby_count) == (None, Overflow.STANDBYS, 1)
    assert policy.groups.cold is None
    assert policy.groups.hot is not None
    assert not policy.groups.hot.merged_checkpoints.allowed
    assert policy.fairness is None


def test_the_demos_policy_is_fast_enforcing_and_bounded_to_eight_replicas() -> None:
    policy = shipped("local.yaml")
    assert policy.mode is Mode.ENFORCE
    assert policy.tick_interval_s == 2
    assert policy.budget.max_replicas_total == 8
    assert policy.engine.resolver
    assert policy.slo.dedicated == {"tenant-07"}
    assert policy.slo.tenants["tenant-07"].isolation is Isolation.DEDICATED
    assert policy.limits(Tier.WARM, EngineLimits()).max_loras == 8
    assert policy.adapters.list is not None
    assert len(policy.adapters.list) == 50
    assert "COMPRESSED" in (ROOT / "policies" / "local.yaml").read_text()


def test_only_the_demo_acts_by_itself() -> None:
    assert {p.name for p in POLICIES if shipped(p.name).mode is not Mode.ADVISE} == {"local.yaml"}


def test_the_schema_is_a_valid_schema_that_refuses_unknown_keys() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    document = yaml.safe_load(default_file())
    assert SCHEMA.is_valid(document)
    document["spec"]["scaling"]["kvUsages"] = 0.8
    assert "kvUsages" in next(SCHEMA.iter_errors(document)).message
    assert schema_text().endswith("}\n")


def test_limits_are_the_groups_then_the_engines_then_what_was_seen() -> None:
    text = default_file().replace("name: example", "name: x")
    data = yaml.safe_load(text)
    data["spec"]["engine"]["limits"] |= {"maxLoras": 16, "maxLoraRank": 32}
    data["spec"]["groups"]["hot"]["limits"]["maxLoras"] = 2
    policy = parse_policy(yaml.safe_dump(data), "x")
    assert isinstance(policy, FleetPolicy)
    seen = EngineLimits(max_loras=8, max_cpu_loras=8, max_num_seqs=64)
    warm, hot = policy.limits(Tier.WARM, seen), policy.limits(Tier.HOT, seen)
    assert (warm.max_loras, warm.max_cpu_loras, warm.max_lora_rank, warm.max_num_seqs) == (16, 16, 32, 64)
    assert (hot.max_loras, hot.max_cpu_loras, hot.max_lora_rank) == (2, 16, 32)
    assert policy.limits(Tier.COLD, seen) == warm

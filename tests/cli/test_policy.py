"""`policy check`, `schema` and `diff`."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml

from autoscaler.domain.fleet import Tier
from autoscaler.policy.exports import as_document, to_yaml
from autoscaler.ring import MemberState, encode
from tests.planner.world import policy

SHIPPED = Path(__file__).resolve().parents[2] / "policies"
GOOD = to_yaml(policy())
BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"\x7fELF\x00\x01", "not allowed in YAML"),
        (b"\xff\xfe\x00", "no UTF-8"),
        (BOMB.encode(), "anchor"),
        (GOOD.replace("kind: FleetPolicy", "kind: FleetPolicy\nkind: FleetPolicy").encode(), "twice"),
        (GOOD.replace("tolerance: 0.1", "tolerance: .nan").encode(), "tolerance"),
        (GOOD.replace("minReplicas: 2", "minReplicas: -2").encode(), "minReplicas"),
        (GOOD.replace("maxReplicas: 16", "maxReplicas: 1").encode(), "minReplicas"),
        (b"x: 1\n" * 2_000_000, "too large"),
    ],
)
def test_a_bad_file_has_a_clear_answer_and_exit_code_1(content, words, tmp_path, run):
    file = tmp_path / "policy.yaml"
    file.write_bytes(content)
    ran = run("policy", "check", file)
    assert ran.code == 1
    assert words in ran.out
    assert "Traceback" not in ran.out + ran.err


def test_json_has_exactly_the_fixed_shape_for_good_and_bad_files(tmp_path, run):
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(GOOD)
    bad.write_text(GOOD.replace("name: fleet", "name: other").replace("mode: enforce", "mode: enforced"))
    ran = run("policy", "check", good, bad, "--json")
    assert ran.code == 1
    assert ran.json[str(good)] == []
    (error,) = ran.json[str(bad)]
    assert set(error) == {"path", "found", "allowed", "message"}
    assert (error["path"], error["found"]) == ("spec.mode", "enforced")
    assert "did you mean `enforce`" in error["message"]


def test_a_folder_is_read_whole_and_its_catalogue_is_checked_as_one(tmp_path, run):
    text = yaml.safe_load(GOOD)
    text["spec"]["adapters"] = {"file": "adapters.yaml", "pathTemplate": "/adapters/{id}"}
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(text))
    (tmp_path / "adapters.yaml").write_text("- a\n- {id: b, rank: 8}\n")
    (tmp_path / "notes.txt").write_text("not a policy")
    ran = run("policy", "check", tmp_path)
    assert ran.code == 0
    assert ran.out.count(": fine") == 2
    (tmp_path / "adapters.yaml").write_text("- {id: a, rnak: 8}\n")
    ran = run("policy", "check", tmp_path)
    assert ran.code == 1
    assert "did you mean `rank`" in ran.out
    (tmp_path / "second.yaml").write_text((tmp_path / "fleet.yaml").read_text())
    assert "already claimed by" in run("policy", "check", tmp_path).out


def test_files_that_are_not_there_are_wrong_usage(tmp_path, run):
    assert run("policy", "check", tmp_path / "x.yaml").code == 2
    ran = run("policy", "check", tmp_path)
    assert (ran.code, ran.err) == (
        2, f"lora-autoscaler: {tmp_path}: no *.yaml or *.yml in this folder; expected policy files\n"
    )  # fmt: skip


def test_every_shipped_policy_is_fine(run):
    assert run("policy", "check", SHIPPED).code == 0


def test_the_schema_accepts_what_the_check_accepts(run):
    schema = run("policy", "schema").json
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(as_document(policy()), schema)


def changed() -> str:
    new = policy()
    new = replace(new, groups=replace(new.groups, warm=replace(new.groups.warm, min_replicas=6)))
    return to_yaml(replace(new, tiering=replace(new.tiering, pins={"t003": Tier.COLD})))


def test_a_difference_says_where_tiers_replicas_and_ring_end_and_what_is_not_known(rings, tmp_path, run):
    _, after, world = rings
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(GOOD)
    new.write_text(changed())
    report = run("policy", "diff", old, new, "--snapshot", after, "--json").json
    assert {c["path"] for c in report["changes"]} == {"spec.groups.warm.minReplicas", "spec.tiering.pins.t003"}
    assert [(t["tenant"], t["now"], t["old"], t["new"]) for t in report["tiers"]] == [("t003", "warm", "warm", "cold")]
    now = world.groups["warm"].current_replicas
    (group,) = report["replicas"]
    assert (group["group"], group["old"], group["new"], group["reason"]) == ("warm", len(world.replicas), 6, "Bounds")
    assert now <= 6
    assert report["ring"]["moves_old"] == 0
    assert report["ring"]["moves_new"] > 0
    assert any(s.startswith("demand:") for s in report["unknown"])


def test_equal_policies_make_no_difference(rings, tmp_path, run):
    _, after, _ = rings
    file = tmp_path / "old.yaml"
    file.write_text(GOOD)
    report = run("policy", "diff", file, file, "--snapshot", after, "--json").json
    assert (report["changes"], report["tiers"], report["replicas"]) == ([], [], [])
    assert report["ring"]["moves_between"] == 0
    assert "0 keys differ" in run("policy", "diff", file, file, "--snapshot", after).out


def test_adapters_that_come_and_go_are_counted_with_the_first_few_and_json_has_all(rings, tmp_path, run):
    _, after, _ = rings

    def written(name: str, adapters: str) -> Path:
        file = tmp_path / name
        document = json.loads(json.dumps(as_document(policy())))
        document["spec"]["adapters"] = yaml.safe_load(adapters)
        file.write_text(json.dumps(document))
        return file

    def listed(*numbers: int) -> str:
        return json.dumps({"list": [{"id": f"t{n:03d}", "source": f"/x/{n}"} for n in numbers]})

    old = written("old.yaml", listed(*range(12)))
    new = written("new.yaml", listed(*range(2, 42)))
    told = run("policy", "diff", old, new, "--snapshot", after).out
    line = next(line for line in told.splitlines() if "spec.adapters" in line)
    assert line == (
        "  spec.adapters.list: 30 added (t012, t013, t014, t015, t016, ...), 2 removed (t000, t001)  "
        "(which adapters are loaded, placed and served)"
    )
    report = run("policy", "diff", old, new, "--snapshot", after, "--json").json
    assert len(report["changes"]) == 32
    template = written("template.yaml", json.dumps({"pathTemplate": "/x/{id}"}))
    told = run("policy", "diff", old, template, "--snapshot", after).out
    assert "spec.adapters.list: 12 entries (t000, t001, t002, t003, t004, ...) -> " in told


def test_a_replica_that_restarts_counts_as_one_that_comes_back(rings, tmp_path, run):
    _, after, world = rings
    snapshot = world.snapshot()
    gone = replace(snapshot.members[0], replica="", address="", state=MemberState.VACANT)
    after.write_bytes(encode(replace(snapshot, members=(gone, *snapshot.members[1:]))))
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(GOOD)
    new.write_text(changed())
    (group,) = run("policy", "diff", old, new, "--snapshot", after, "--json").json["replicas"]
    assert (group["now"], group["new"]) == (len(snapshot.members), 6)


def test_a_snapshot_of_another_fleet_and_a_bad_policy_are_refused(rings, tmp_path, run):
    _, after, _ = rings
    file = tmp_path / "old.yaml"
    file.write_text(GOOD.replace("name: fleet", "name: other"))
    ran = run("policy", "diff", file, file, "--snapshot", after)
    assert ran.code == 2
    assert "is of fleet 'fleet'" in ran.err
    file.write_text("spec: {}")
    assert run("policy", "diff", file, file, "--snapshot", after).code == 2
    assert json.loads(after.read_bytes())["fleet"] == "fleet"

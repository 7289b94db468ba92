"""`ring owners` and `ring diff`: the specification on the command line, with the core install alone."""

import gzip
import json
import subprocess
import sys
from importlib.resources import files

import pytest

from autoscaler.ring import decode
from tests.ring import slow_reading

VECTORS = json.loads((files("autoscaler.ring") / "vectors.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("item", VECTORS["snapshots"], ids=lambda item: item["name"])
def test_owners_of_every_golden_snapshot_are_printed_in_the_fixed_shape(item, tmp_path, run):
    file = tmp_path / "ring.json"
    file.write_text(json.dumps(item["snapshot"]), encoding="utf-8")
    adapters = list(dict.fromkeys(answer["adapter"] for answer in item["owners"]))
    ran = run("ring", "owners", "--snapshot", file, "--json", "--", *adapters)
    assert ran.json == {a["adapter"]: {"owners": a["owners"], "via": a["via"]} for a in item["owners"]}
    assert ran.code == (1 if any(not a["owners"] for a in item["owners"]) else 0)


def test_owners_as_a_table_and_from_a_compressed_snapshot(rings, run):
    before, _, _ = rings
    packed = before.with_suffix(".json.gz")
    packed.write_bytes(gzip.compress(before.read_bytes()))
    ran = run("ring", "owners", "--snapshot", packed, "t000", "base", "who")
    lines = [line.split() for line in ran.out.splitlines()]
    assert lines[0] == ["ADAPTER", "VIA", "OWNERS"]
    assert [line[:2] for line in lines[2:]] == [["base", "base"], ["who", "cold"]]
    assert ran.code == 0


def test_diff_has_one_entry_a_pair_and_the_epochs(rings, run):
    before, after, _ = rings
    ran = run("ring", "diff", before, after, "--json")
    a, b = decode(before.read_bytes()), decode(after.read_bytes())
    assert ran.json["epochs"] == [a.epoch, b.epoch]
    gained = {(m["adapter"], m["to"]) for m in ran.json["moves"] if m["to"]}
    lost = {(m["adapter"], m["from"]) for m in ran.json["moves"] if m["from"]}
    documents = [json.loads(p.read_bytes()) for p in (before, after)]
    pairs = [_pairs(d) for d in documents]
    assert gained == pairs[1] - pairs[0]
    assert lost == pairs[0] - pairs[1]
    assert run("ring", "diff", before, before, "--json").json == {"moves": [], "epochs": [a.epoch, a.epoch]}
    text = run("ring", "diff", before, after).out.splitlines()
    assert text[0].split() == ["ADAPTER", "FROM", "TO"]
    assert text[-1].endswith(f"epoch {a.epoch} to {b.epoch}")


def _pairs(document: dict) -> set[tuple[str, str]]:
    """All (adapter, slot) pairs by the independent reading; every member of these snapshots is active."""
    found = set()
    for adapter in document["warm"]:
        slots = [m["slot"] for m in document["members"]]
        own = document["exceptions"].get(adapter)
        chosen = own if own is not None else slow_reading.ranked(adapter, slots)[: document["replication_factor"]]
        found |= {(adapter, slot) for slot in chosen}
    return found


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"\x00\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"version": 2}', "version"),
        (b"\x1f\x8b\x00", "no whole gzip file"),
    ],
)
def test_what_is_no_snapshot_is_refused_in_one_sentence(content, words, tmp_path, run):
    file = tmp_path / "ring.json"
    file.write_bytes(content)
    ran = run("ring", "owners", "--snapshot", file, "a")
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert ran.err.startswith(f"lora-autoscaler: {file}: ")
    assert ran.err.count("\n") == 1


def test_a_changed_snapshot_is_refused_for_its_digest(rings, run):
    before, after, _ = rings
    before.write_text(before.read_text().replace('"replication_factor":2', '"replication_factor":1'))
    ran = run("ring", "diff", before, after)
    assert ran.code == 2
    assert "digest" in ran.err


def test_a_file_that_is_not_there_and_rings_of_two_fleets(rings, run):
    before, after, _ = rings
    assert run("ring", "diff", before, "nowhere.json").err == (
        "lora-autoscaler: nowhere.json: no such file or directory; expected a ring snapshot (JSON)\n"
    )
    other = slow_reading_document(after)
    ran = run("ring", "diff", before, other)
    assert ran.code == 2
    assert "compare two snapshots of one fleet" in ran.err


def slow_reading_document(path):
    document = json.loads(path.read_bytes()) | {"fleet": "other"}
    document["digest"] = slow_reading.digest(document)
    found = path.with_name("other.json")
    found.write_text(json.dumps(document))
    return found


BLOCKING = """
import sys
ALLOWED = {"autoscaler", "numpy", "xxhash", "rfc8785", "_distutils_hack", "mkl", "cython_runtime"}
class Blocked:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root not in ALLOWED and root not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {root!r}", name=root)
sys.meta_path.insert(0, Blocked())
from autoscaler.cli import main
sys.exit(main(sys.argv[1:]))
"""


def blocked(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCKING, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_core_install_is_enough_for_ring_and_help_and_names_the_extra_for_the_rest(rings):
    """Where nothing but numpy, xxhash and rfc8785 can be imported."""
    before, after, _ = rings
    owners = blocked("ring", "owners", "--snapshot", before, "t000", "--json")
    assert (owners.returncode, owners.stderr) == (0, "")
    assert json.loads(owners.stdout)["t000"]["owners"]
    assert blocked("ring", "diff", before, after).returncode == 0
    assert "demo" in blocked("--help").stdout
    other = blocked("policy", "check", "x.yaml")
    assert other.returncode == 2
    assert other.stderr == (
        "lora-autoscaler: this needs yaml, of the extra `controller`: pip install 'lora-autoscaler[controller]'\n"
    )

"""The worked example of docs/ring.md is what the code computes."""

import re
from pathlib import Path

import pytest

from autoscaler.ring import Ring, decode, h64, ranked, score

DOC = (Path(__file__).parents[2] / "docs" / "ring.md").read_text(encoding="utf-8")
RING = Ring(decode(re.search(r"```json\n(.*?)\n```", DOC, re.DOTALL)[1]))


def table(head):
    """The rows of the table whose first column is `head`, cells without backquotes."""
    lines = iter(DOC[DOC.index(f"| {head} |") :].splitlines()[2:])
    rows = []
    for line in lines:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
    return rows


@pytest.mark.parametrize("row", table("slot"), ids=lambda row: row[0])
def test_scores(row):
    slot, hashed, scored = row
    assert (format(h64(slot), "016x"), format(score("adapter-17", slot), "016x")) == (hashed, scored)


def test_ranking():
    told = re.search(r'`ranked\("adapter-17"\)` is ((s\d{4},? ?)+)', DOC)[1]
    slots = [member.slot for member in RING.snapshot.members]
    assert ", ".join(ranked("adapter-17", slots)) == told.strip(", ")
    assert format(h64("adapter-17"), "016x") in DOC


@pytest.mark.parametrize("row", table("name"), ids=lambda row: row[0])
def test_owners(row):
    name, names, via, standbys = row
    owners = RING.owners(name)
    assert (", ".join(owners.names), owners.via.value) == (names, via)
    assert ", ".join(member.slot for member in owners.standbys) == standbys


@pytest.mark.parametrize("row", table("in flight"), ids=lambda row: row[0])
def test_choices(row):
    counts, bound, goes_to, _ = row
    in_flight = {f"s{i:04d}": int(count) for i, count in enumerate(counts.split(","))}
    assert RING.request_limit(in_flight) == int(bound)
    assert RING.choose("adapter-17", in_flight).member.slot == goes_to

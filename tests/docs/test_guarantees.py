"""The pages on guarantees and threats name tests that there are, and the defects that are tried."""

import re
from pathlib import Path

import pytest

from tests.scenarios.schedules import EVENTS
from tests.scenarios.test_defects import DEFECTS
from tests.scenarios.test_faults import SCHEDULES

ROOT = Path(__file__).resolve().parents[2]
PAGES = {name: (ROOT / "docs" / name).read_text() for name in ("guarantees.md", "threat-model.md")}


@pytest.mark.parametrize("name", PAGES)
def test_every_path_and_test_that_a_page_names_exists(name: str):
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    for quoted in re.findall(r"`([^`]+)`", PAGES[name]):
        if quoted.startswith(("tests/", "clients/")):
            assert (ROOT / quoted).exists(), quoted
        if re.fullmatch(r"test_\w+", quoted):
            assert f"def {quoted}(" in sources, quoted
        if re.fullmatch(r"_[a-z_]+", quoted):
            assert f"def {quoted}(" in sources, quoted


def test_the_table_of_defects_is_what_is_tried():
    rows = re.findall(
        r"^\| (.+) \| `(?:FaultyWorld\.)?(\w+)` \|$", PAGES["guarantees.md"].split("anybody notice?")[1], re.M
    )
    assert dict(rows) == {name: defect.caught_by for name, defect in DEFECTS.items()}


def test_numbers_on_the_page_are_those_of_the_tests():
    assert f"{SCHEDULES:,} seeded schedules" in PAGES["guarantees.md"]
    assert f"{len(DEFECTS)} defects" in PAGES["guarantees.md"]
    assert len(EVENTS) == 30
    assert "Thirty kinds of fault" in PAGES["guarantees.md"]

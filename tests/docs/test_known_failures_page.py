"""Every test that the page of known failures names exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "known-failures.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


@pytest.mark.parametrize(("file", "test"), NAMED, ids=[test for _, test in NAMED])
def test_what_is_named_exists(file: str, test: str) -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, functions)}
    assert test in found


def test_every_row_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    assert [row for row in rows if "`tests/" not in row] == []

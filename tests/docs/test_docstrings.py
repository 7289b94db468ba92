"""Every public module, class, function and method says what it is."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(p for package in ("autoscaler", "dashboard") for p in (ROOT / package).rglob("*.py"))
DEFINITIONS = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public(node: ast.Module | ast.ClassDef) -> Iterator[ast.AST]:
    """The public definitions of a module or class, those of public classes within included."""
    for child in node.body:
        if isinstance(child, DEFINITIONS) and not child.name.startswith("_"):
            yield child
            if isinstance(child, ast.ClassDef):
                yield from public(child)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_public_name_is_documented(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = [tree, *public(tree)] if tree.body else []
    assert [getattr(n, "name", "module") for n in nodes if not ast.get_docstring(n)] == []

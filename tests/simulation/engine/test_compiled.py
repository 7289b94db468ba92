"""The compiled kernel works from a package that cannot be written, and never from machine code of other sources."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoscaler.simulator.engine.compiled import compiled

WHERE = """
import autoscaler.simulator.engine.compiled as c
print(c._cache_root())
"""


def cache_root(**environment: str) -> Path:
    known = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", WHERE], env={**known, **environment}, capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip())


def test_the_cache_lies_outside_the_package(tmp_path: Path) -> None:
    assert cache_root(XDG_CACHE_HOME=str(tmp_path)) == tmp_path / "lora-autoscaler" / "compiled"
    assert cache_root(NUMBA_CACHE_DIR=str(tmp_path / "mine")) == tmp_path / "mine"


def test_without_a_writable_home_the_temporary_folder_serves(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where a folder is needed")
    root = cache_root(XDG_CACHE_HOME=str(blocked), TMPDIR=str(tmp_path))
    assert root == tmp_path / f"lora-autoscaler-compiled-{os.getuid()}"


def test_the_setting_of_other_users_of_numba_is_left_alone() -> None:
    numba = pytest.importorskip("numba")
    before = numba.config.CACHE_DIR
    assert compiled(lambda x: x + 1)(1) == 2
    assert before == numba.config.CACHE_DIR

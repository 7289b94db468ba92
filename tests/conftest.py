"""What every test may ask for."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent

# Several workers share the cores: a library's own threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A change is judged on the same examples every time; `make explore` looks for new ones, and what it finds is kept.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real recordings beside the checkout; a test that needs them skips where they are absent."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the recorded inputs are not beside this checkout")
    return path


class PartsTogether(LoadScopeScheduling):  # type: ignore[misc]
    """Which tests share a worker: those of one end-to-end file, and all that share the control plane; else none."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path.startswith("tests/e2e/kubernetes/"):
            return "tests/e2e/kubernetes/"
        return path if path.startswith("tests/e2e/") else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> PartsTogether:
    """Deal tests to workers so that what is slow to start is started once."""
    return PartsTogether(config, log)

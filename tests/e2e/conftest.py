"""What every end-to-end test may ask for, and what is shown when one fails."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.e2e.parts.controlplane import ControlPlane
from tests.e2e.parts.processes import Server

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here are `e2e`."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("e2e")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the end of the log of each server that runs."""
    report = yield
    if report.failed:
        for server in Server.running:
            report.sections.append((f"the end of {server.log}", server.log_tail()))
    return report


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real Kubernetes control plane, started when the first test asks for it; namespaces keep tests apart.

    Tests that use it live in `kubernetes/`, which one worker runs, so that it starts once a run.
    """
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as running:
        yield running


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace of the test's own."""
    with control_plane.namespace() as name:
        yield name

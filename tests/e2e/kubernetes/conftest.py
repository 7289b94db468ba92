"""A fleet of simulated engines in the control plane, for every test here."""

from collections.abc import Iterator

import pytest

from tests.e2e.kubernetes.fleet import FleetUnderTest
from tests.e2e.parts.controlplane import ControlPlane


@pytest.fixture
def fleet(control_plane: ControlPlane, namespace: str) -> Iterator[FleetUnderTest]:
    """Nodes and engines for a namespace; the test deploys the workload."""
    with FleetUnderTest(control_plane, namespace) as running:
        yield running

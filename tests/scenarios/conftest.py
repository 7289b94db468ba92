"""Recorded pages served over HTTP, for scenarios that go through a real reader."""

from tests.connectors.conftest import session as session
from tests.connectors.metrics.conftest import pages as pages

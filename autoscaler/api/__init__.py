"""REST under `/v1`: thin routes over the last view of each fleet, and the few commands that operators give.

Nothing is decided here. Every instance serves reads; who changed something comes from the credential, never the body.
"""

from autoscaler.api.app import create_app
from autoscaler.api.parts import ApiParts

__all__ = ["ApiParts", "create_app"]

"""Stock Envoy as the router: its bootstrap, the membership files it watches, its process and what it says it applies.

The room decides nothing: a ring snapshot comes in, Envoy's resources go out.
"""

from autoscaler.connectors.envoy.bootstrap import EnvoySettings, bootstrap
from autoscaler.connectors.envoy.process import EnvoyProcess
from autoscaler.connectors.envoy.publisher import EnvoyFilePublisher
from autoscaler.connectors.envoy.resources import UNKNOWN_NAME, Mode

__all__ = ["UNKNOWN_NAME", "EnvoyFilePublisher", "EnvoyProcess", "EnvoySettings", "Mode", "bootstrap"]

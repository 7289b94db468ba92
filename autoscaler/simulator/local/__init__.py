"""A platform on one machine: groups of simulated engines behind the port that Kubernetes implements in production."""

from autoscaler.simulator.local.fleet import LocalFleet

__all__ = ["LocalFleet"]

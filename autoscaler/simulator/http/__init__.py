"""Simulated engines in real time: HTTP servers that speak vLLM's API, driven by the engine model.

One asyncio process serves many engines, each on an address of its own; run as a module it serves one.
"""

from autoscaler.simulator.http.adapters import AdapterFiles, AdapterFolder, AdapterTable
from autoscaler.simulator.http.options import EngineOptions, Faults
from autoscaler.simulator.http.pump import Pump
from autoscaler.simulator.http.server import SimulatedEngine

__all__ = ["AdapterFiles", "AdapterFolder", "AdapterTable", "EngineOptions", "Faults", "Pump", "SimulatedEngine"]

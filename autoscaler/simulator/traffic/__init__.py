"""Requests over time: read from traces or generated, and sent open-loop over HTTP.

Readers give arrays in bounded chunks, so a trace may be larger than memory; the same readers serve the discrete-event
simulator and the load generator.
"""

from autoscaler.simulator.traffic.arrivals import Arrivals, Trace, TraceError, sampled, shaped, steady
from autoscaler.simulator.traffic.generated import Burst, GeneratedTrace, GeneratorSettings
from autoscaler.simulator.traffic.load import LoadGenerator, LoadResults
from autoscaler.simulator.traffic.requests import open_trace
from autoscaler.simulator.traffic.servegen import ServeGenTrace

__all__ = [
    "Arrivals",
    "Burst",
    "GeneratedTrace",
    "GeneratorSettings",
    "LoadGenerator",
    "LoadResults",
    "ServeGenTrace",
    "Trace",
    "TraceError",
    "open_trace",
    "sampled",
    "shaped",
    "steady",
]

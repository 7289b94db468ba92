"""Measurements, each against a peer or a target in the same run; `python -m benchmarks` runs them all."""

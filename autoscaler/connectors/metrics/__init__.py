"""Metrics as signals: one catalogue of engine and router series, read through Prometheus or scraped directly.

Both ways yield raw samples, and one reduction turns samples into signals, so both give the same numbers. The room knows
wire names and their traps; it decides nothing.
"""

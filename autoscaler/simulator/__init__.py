"""The simulator: an engine model on a virtual clock, calibrated on real servers, and fleets of such engines."""

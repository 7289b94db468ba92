"""What one tick saw, decided and did, as one view; and that view as records, Prometheus series and log lines."""

from autoscaler.telemetry.metrics import FleetMetrics
from autoscaler.telemetry.records import records_of
from autoscaler.telemetry.view import FleetView, LearningView

__all__ = ["FleetMetrics", "FleetView", "LearningView", "records_of"]

"""What hurts: saturation, adapter thrash, a noisy neighbour or one bad replica, each with its evidence.

The room names causes; what is done about them is decided elsewhere. It refuses to name one below the evidence that the
policy asks for, and says what is missing instead.
"""

from autoscaler.diagnosis.diagnose import diagnose
from autoscaler.diagnosis.memory import DiagnosisMemory

__all__ = ["DiagnosisMemory", "diagnose"]

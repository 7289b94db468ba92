"""Numbers as sentences tell them."""

from __future__ import annotations


def figure(value: float) -> str:
    """Four digits, and never a power of ten: `0.4821`, `2654`, `16,072`."""
    return f"{value:,.0f}" if abs(value) >= 9_999.5 else f"{value:.4g}"

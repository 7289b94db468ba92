"""Numbers and words for people. What is unknown reads `unknown`, never zero."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from typing import Any

UNKNOWN = "unknown"

CAUSES = {
    "none": "well",
    "saturation": "saturated",
    "thrash": "adapter thrash",
    "noisy-neighbour": "noisy neighbour",
    "bad-replica": "bad replica",
    "router-imbalance": "router imbalance",
    "slow-adapter-store": "slow adapter store",
    "unknown": UNKNOWN,
}


def cause(name: str) -> str:
    """A cause in words."""
    return CAUSES.get(name, name)


WOULD_REPLICAS_HELP = {
    "saturation": "Yes: compute or KV cache is short.",
    "thrash": "No: adapter slots are short, not compute. Placement, tiers or more adapter slots cure it.",
    "noisy-neighbour": "No: one tenant's load is the others' latency. Give it a group of its own.",
    "bad-replica": "No: one replica is slow under the load that its peers carry. Replace it.",
    "router-imbalance": "No: some replicas queue while others are idle. Look at the router.",
    "slow-adapter-store": "No: the loads themselves take long. Look at the adapter store.",
    "none": "Not needed: nothing hurts.",
    "well": "Not needed: nothing hurts.",
    "unknown": "Not known: signals are missing.",
}


def count(value: float | None) -> str:
    """`987`, `4.3k`, `12k`, `1.2M`; small numbers keep two digits."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= limit * 0.9995:
            scaled = value / limit
            return f"{scaled:.0f}{unit}" if abs(scaled) >= 9.95 else f"{scaled:.1f}{unit}"
    return f"{value:.0f}" if size >= 9.95 or value == round(value) else f"{value:.2g}"


def rate(value: float | None, unit: str = "tokens/s") -> str:
    """A count with its unit."""
    return UNKNOWN if value is None else f"{count(value)} {unit}"


def seconds(value: float | None) -> str:
    """`85 ms`, `1.2 s`, `27 s`, `3.2 min`, `5 h`, `2 d`."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    if size == 0:
        return "0 s"
    if size < 0.9995:
        return f"{value * 1000:.0f} ms" if size >= 0.001 else "below 1 ms"
    if size < 9.95:
        return f"{value:.1f} s"
    if size < 90:
        return f"{value:.0f} s"
    for unit_s, unit, until in ((60, "min", 90), (3600, "h", 48), (86400, "d", float("inf"))):
        scaled = value / unit_s
        if abs(scaled) < until:
            return f"{scaled:.1f} {unit}" if abs(scaled) < 9.95 else f"{scaled:.0f} {unit}"
    return f"{value:.0f} s"


def hours(value: float) -> str:
    """GPU-hours: `0.17`, `118.2`."""
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}"


def percent(ratio: float | None) -> str:
    """`4.2 %`, `73 %`."""
    if ratio is None:
        return UNKNOWN
    scaled = ratio * 100
    return f"{scaled:.1f} %" if 0 < abs(scaled) < 9.95 else f"{scaled:.0f} %"


def value_of(signal: dict[str, Any] | None) -> float | None:
    """The number of a signal; None where it is missing."""
    return None if signal is None else signal.get("value")


def why_missing(signal: dict[str, Any] | None) -> str:
    """Why a signal is missing; empty where it is there."""
    return "not reported" if signal is None else str(signal.get("missing", ""))


def zone(name: str | None) -> datetime.tzinfo:
    """The viewer's time zone, UTC where the browser names none that is known."""
    try:
        return zoneinfo.ZoneInfo(name or "UTC")
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return datetime.UTC


def instant(text: str | None) -> datetime.datetime | None:
    """A time of the API."""
    return None if not text else datetime.datetime.fromisoformat(text)


def clock(text: str | None, tz: datetime.tzinfo, today: datetime.date | None = None) -> str:
    """`21:04:10`, with the day where it is another than `today`."""
    at = instant(text)
    if at is None:
        return UNKNOWN
    local = at.astimezone(tz)
    if today is None or local.date() == today:
        return local.strftime("%H:%M:%S")
    return f"{local.day} {local.strftime('%b %H:%M')}"


def spaced(reason: str) -> str:
    """`ThrashNotSaturation` as `Thrash not saturation`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", reason)
    return re.sub(r"\bslo\b", "SLO", words[:1].upper() + words[1:].lower(), flags=re.IGNORECASE)


def sentence(text: str | None) -> str:
    """First letter upper, a full stop at the end; names such as `budget.maxTotal` stay as they are."""
    stripped = (text or "").strip()
    if not stripped:
        return ""
    first, _, _ = stripped.partition(" ")
    start = stripped[:1].upper() if first.rstrip(",;").isalpha() and first.islower() else stripped[:1]
    return start + stripped[1:] + ("" if stripped[-1] in ".!?" else ".")


def plural(number: int, noun: str, many: str = "") -> str:
    """`1 replica`, `8 replicas`."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"

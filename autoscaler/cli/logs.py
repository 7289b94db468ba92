"""Log lines on standard error: for people, or one JSON object each. Decisions are lines of their own."""

from __future__ import annotations

import datetime
import json
import logging
import sys

from autoscaler.cli.settings import LogFormat, Logging
from autoscaler.domain.decisions import DecisionRecord
from autoscaler.telemetry import FleetView

_log = logging.getLogger("autoscaler.decisions")


class JsonLines(logging.Formatter):
    """`{"at", "level", "logger", "message", ...}`, with a decision's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")
        line = {"at": at.replace("+00:00", "Z"), "level": record.levelname.lower(), "logger": record.name}
        line |= {"message": record.getMessage(), **getattr(record, "decision", {})}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up(told: Logging) -> None:
    """Log to standard error as the settings say."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s")
    handler.setFormatter(JsonLines() if told.format is LogFormat.JSON else text)
    logging.basicConfig(level=told.level.upper(), handlers=[handler], force=True)
    for chatty in ("uvicorn", "httpx", "urllib3", "asyncio"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLevelName(told.level.upper())))


def log_decisions(view: FleetView, records: tuple[DecisionRecord, ...]) -> None:
    """A subscriber of the loop: each record as a line."""
    for r in records:
        fields = {
            "fleet": r.fleet, "id": r.id, "step": r.step, "subject": r.subject, "reason": r.reason.value,
            "before": r.before, "after": r.after, "mode": view.plan.mode.value,
        }  # fmt: skip
        change = f"{r.before} -> {r.after}" if r.before != r.after else f"stays {r.after}"
        _log.info(
            "%s: %s %s, %s: %s", r.fleet, r.subject, change, r.reason.value, r.message, extra={"decision": fields}
        )

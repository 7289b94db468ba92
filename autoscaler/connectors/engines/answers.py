"""What an engine's answer to a load, an unload or a list means. No I/O: status and body in, verdict out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

MOST_WORDS = 500


class Verdict(StrEnum):
    """What an answer says about trying again."""

    DONE = "done"
    ALREADY = "already"  # the name is registered
    UNKNOWN = "unknown"  # the name is not registered
    REFUSED = "refused"  # the same call will fail again until somebody changes something
    UPDATING_OFF = "updating-off"  # the engine was started without adapter endpoints
    BUSY = "busy"  # it may succeed later


@dataclass(frozen=True, slots=True)
class Answer:
    """A verdict and the engine's own words."""

    verdict: Verdict
    words: str


UPDATING_OFF = (
    "the engine has no endpoint to load adapters at run time: start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True "
    "(SGLang with --enable-lora)"
)
# Statuses of proxies and overloaded servers, and of credentials that may be put right without a restart.
PASSING = frozenset({401, 403, 408, 425, 429, 502, 503, 504})
# Not any `rank`: engines also have ranks that fail and come back.
RANK_TOO_HIGH = re.compile(r"lora[ _-]rank", re.IGNORECASE)
MISSING_WORDS = ("not found", "cannot be found", "does not exist", "not loaded", "no adapter")


def load_answer(status: int, body: str) -> Answer:
    """The answer to a load."""
    words = words_of(body)
    lower = words.lower()
    if status == 200 and not _says_failure(body):
        return Answer(Verdict.DONE, words)
    if "already" in lower and ("loaded" in lower or "exist" in lower):
        return Answer(Verdict.ALREADY, words)
    if route_missing(status, body):
        return Answer(Verdict.UPDATING_OFF, UPDATING_OFF)
    if status in PASSING or (status >= 500 and not RANK_TOO_HIGH.search(words)):
        return Answer(Verdict.BUSY, f"{status}: {words}")
    return Answer(Verdict.REFUSED, f"{status}: {words}")


def unload_answer(status: int, body: str) -> Answer:
    """The answer to an unload."""
    words = words_of(body)
    if status == 200 and not _says_failure(body):
        return Answer(Verdict.DONE, words)
    if route_missing(status, body):
        return Answer(Verdict.UPDATING_OFF, UPDATING_OFF)
    if status == 404 or (status == 400 and any(word in words.lower() for word in MISSING_WORDS)):
        return Answer(Verdict.UNKNOWN, words)
    verdict = Verdict.BUSY if status in PASSING or status >= 500 else Verdict.REFUSED
    return Answer(verdict, f"{status}: {words}")


def adapters_listed(body: str) -> dict[str, str] | None:
    """Adapter id -> root, of a `/v1/models` body; the base model has no parent. None where it is no such list."""
    try:
        entries = json.loads(body)["data"]
        return {str(e["id"]): str(e.get("root") or "") for e in entries if e.get("parent") is not None}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def merged_listed(body: str, base_model: str) -> frozenset[str]:
    """Names that a `/v1/models` body lists without a parent, the fleet's base model apart: an engine that was started
    from a merged checkpoint serves its adapter so."""
    try:
        entries = json.loads(body)["data"]
        return frozenset(str(e["id"]) for e in entries if e.get("parent") is None) - {base_model}
    except (ValueError, KeyError, TypeError, AttributeError):
        return frozenset()


def words_of(body: str) -> str:
    """The message of an answer: nested, flat, SGLang's, FastAPI's, or the text itself; bounded."""
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = body
    return _message(parsed)[:MOST_WORDS]


def route_missing(status: int, body: str) -> bool:
    """Whether the path is not served at all, which is not the same as an adapter that is not found."""
    if status == 405:
        return True
    try:
        return status == 404 and bool(json.loads(body) == {"detail": "Not Found"})
    except ValueError:
        return status == 404 and not body.strip()


def _message(parsed: object) -> str:
    if isinstance(parsed, str):
        return parsed.strip()
    if not isinstance(parsed, Mapping):
        return json.dumps(parsed)
    error = parsed.get("error")
    if isinstance(error, Mapping):
        return _message(error)
    for key in ("error_message", "message", "detail", "error"):
        if parsed.get(key):
            return str(parsed[key])
    return json.dumps(parsed)


def _says_failure(body: str) -> bool:
    try:
        parsed = json.loads(body)
    except ValueError:
        return False
    return isinstance(parsed, Mapping) and parsed.get("success") is False

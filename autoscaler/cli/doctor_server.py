"""What a running controller sees of its fleets, and what its engines answer to harmless questions."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from autoscaler.cli.findings import Finding, fine, note, wrong
from autoscaler.cli.remote import Controller
from autoscaler.connectors.engines.answers import adapters_listed
from autoscaler.connectors.engines.dialects import SGLANG, VLLM

_TIMEOUT_S = 5.0
_AT_ONCE = 16
_LOAD_PATHS = (VLLM.load_path, SGLANG.load_path)
_RESOLVER = (
    "Only a resolver loads unknown adapters (vLLM: VLLM_PLUGINS=lora_filesystem_resolver and "
    "VLLM_LORA_RESOLVER_CACHE_DIR); without one keep `engine.resolver: false` and `ring.overflow` off `any`."
)


def check_server(server: Controller, fleet: str | None) -> list[Finding]:
    """Every check of one fleet, or of all that the credential reaches. Raises UsageError where nobody answers."""
    fleets = [server.get(f"/v1/fleets/{fleet}")] if fleet else server.get("/v1/fleets")["items"]
    if not fleets:
        remedy = "Wait for the first tick; `run` says at its start which policies it took."
        return [wrong("controller", server.url, "shows no fleet", remedy)]
    findings = [fine("controller", server.url, f"answers with {len(fleets)} fleets")]
    for status in fleets:
        findings += [*_controller(status), *_signals(status), *_conditions(status), *_routers(status)]
        replicas = [r for g in status["groups"] for r in g["replicas"]]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            probed = pool.map(lambda replica, fleet=status["fleet"]: list(_engine(fleet, replica)), replicas)
        findings += [finding for found in probed for finding in found]
    return findings


def _controller(status: Any) -> Iterator[Finding]:
    name = status["fleet"]
    age_s = time.time() - _seconds(status["at"])
    if not -5.0 <= age_s <= 3 * status["tick_interval_s"] + 30.0:
        yield wrong(
            "tick", name, f"the last one is {age_s:.0f} s old by this machine's clock",
            "Read the controller's log: a tick that fails is logged. Or set both clocks by NTP.",
        )  # fmt: skip
    else:
        yield fine("tick", name, f"the last one is {max(age_s, 0.0):.0f} s old")
    if status["frozen"]:
        remedy = "`lora-autoscaler detach --undo`" if "detached" in status["frozen"] else "End the freeze."
        yield note("fleet", name, f"nothing is done: {status['frozen']}", remedy)
    elif not status["leader"]:
        yield note("fleet", name, "another instance leads; this one only watches")
    elif status["mode"] == "advise":
        yield note("fleet", name, "mode advise: nothing is changed", "Set `mode: propose` or `enforce` to act.")
    else:
        yield fine("fleet", name, f"mode {status['mode']}, epoch {status['epoch']}")


def _signals(status: Any) -> Iterator[Finding]:
    for name, signal in status["signals"].items():
        if signal["value"] is None:
            yield wrong(
                "signal", f"{status['fleet']} {name}", f"missing: {signal['missing']}",
                "Run `lora-autoscaler doctor --policies DIR --settings FILE` where the controller runs.",
            )  # fmt: skip
        else:
            yield fine("signal", f"{status['fleet']} {name}", f"{signal['age_s']:.1f} s old")


def _conditions(status: Any) -> Iterator[Finding]:
    for condition in status["conditions"]:
        yield wrong(
            "condition", f"{status['fleet']} {condition['name']}", condition["message"],
            f"It holds since {condition['since']}; docs/reference/conditions.md says what cures it.",
        )  # fmt: skip


def _routers(status: Any) -> Iterator[Finding]:
    for router in status["routers"]:
        behind = status["epoch"] - router["epoch"]
        subject = f"{status['fleet']} {router['router']}"
        if behind > 1:
            yield wrong(
                "router", subject, f"{behind} epochs behind", "See whether it can read the ring, and its own log."
            )
        else:
            yield fine("router", subject, f"applies epoch {router['epoch']}")
    if not status["routers"]:
        yield note(
            "router", status["fleet"], "no router says which epoch it applies",
            "Routers of your own: POST /v1/fleets/FLEET/ring/acks; Envoy is asked on its admin port.",
        )  # fmt: skip


def _engine(fleet: str, replica: Any) -> Iterator[Finding]:
    """Ask an engine for its list, and its load endpoint for nothing: an empty body is refused and changes nothing."""
    subject = f"{fleet} {replica['replica']}"
    if not replica["address"]:
        yield note("engine", subject, f"{replica['state']}, without an address yet")
        return
    url = f"http://{replica['address']}"
    try:
        listed = httpx.get(f"{url}/v1/models", timeout=_TIMEOUT_S)
        statuses = [httpx.post(f"{url}{path}", json={}, timeout=_TIMEOUT_S).status_code for path in _LOAD_PATHS]
    except httpx.HTTPError as error:
        state = wrong if replica["registered_adapters"] is None else note
        remedy = "Run doctor where engines can be reached, or see why the engine does not answer."
        yield state("engine", subject, f"{url} cannot be reached from here: {error}", remedy)
        return
    if any(status not in (404, 405, 401, 403) for status in statuses):
        yield fine("engine", subject, "adapters can be loaded at run time")
    elif 401 in statuses or 403 in statuses:
        yield note("engine", subject, "its endpoints need an API key, which doctor does not have")
    else:
        yield wrong(
            "engine", subject, "it has no endpoint for loading adapters (404)",
            "vLLM: set VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora; SGLang: --enable-lora.",
        )  # fmt: skip
    yield _resolver(subject, adapters_listed(listed.text) if listed.is_success else None)


def _resolver(subject: str, listed: dict[str, str] | None) -> Finding:
    """Whether a resolver was at work: it lists a name whose root is a folder of that name."""
    if listed is None:
        return wrong("engine", subject, "its list of models cannot be read", "See whether GET /v1/models answers.")
    found = [a for a, root in listed.items() if root.rstrip("/").rpartition("/")[2] == a]
    if found:
        return fine(
            "resolver", subject, f"{len(found)} adapters lie in folders of their name, as a resolver finds them"
        )
    return note("resolver", subject, "no adapter was seen that a resolver could have loaded", _RESOLVER)


def _seconds(at: str) -> float:
    return datetime.datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp()

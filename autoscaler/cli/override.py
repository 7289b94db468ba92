"""`override set`, `clear` and `list`, through the API."""

from __future__ import annotations

import argparse
import json
from typing import Any

from autoscaler.cli.remote import Controller, controller
from autoscaler.cli.tables import table


def run(arguments: argparse.Namespace) -> int:
    """Do one of the three. Returns 0. Raises UsageError or RefusedError."""
    with controller(arguments) as server:
        answer = _DO[arguments.part](server, arguments)
    if arguments.json:
        print(json.dumps(answer, indent=2))
    else:
        print(_SAY[arguments.part](answer))
    return 0


def _set(server: Controller, arguments: argparse.Namespace) -> Any:
    body = {"tier": arguments.tier, "reason": arguments.reason, "ttl_s": arguments.ttl}
    return server.call(
        "PUT", server.path("tenants", arguments.tenant, "override"), body=body, headers=_if_match(arguments)
    )


def _clear(server: Controller, arguments: argparse.Namespace) -> Any:
    return server.call("DELETE", server.path("tenants", arguments.tenant, "override"), headers=_if_match(arguments))


def _list(server: Controller, arguments: argparse.Namespace) -> Any:
    return server.get(server.path("overrides"))


def _if_match(arguments: argparse.Namespace) -> dict[str, str]:
    return {} if arguments.if_revision is None else {"If-Match": f'"{arguments.if_revision}"'}


def _say_set(o: Any) -> str:
    return (
        f"{o['tenant']} is {o['tier'].upper()} until {o['expires_at']} by {o['actor']} (revision {o['revision']}); "
        f"it was {o['displaces_tier'].upper()}. Decided within two ticks: `lora-autoscaler explain "
        f"tenant/{o['tenant']}`" + (f"\nnote: {o['note']}" if o.get("note") else "")
    )


def _say_cleared(o: Any) -> str:
    return f"the override of {o['tenant']} to {o['tier'].upper()} ({o['reason']}) is cleared; the policy decides again"


def _say_list(page: Any) -> str:
    if not page["items"]:
        return "there are no overrides"
    rows = ((o["tenant"], o["tier"], _state(o), o["expires_at"], o["actor"], o["reason"]) for o in page["items"])
    notes = [f"{o['tenant']}: {o['note']}" for o in page["items"] if o.get("note")]
    return "\n".join((table(("TENANT", "TIER", "STATE", "UNTIL", "BY", "REASON"), rows), *notes))


def _state(o: Any) -> str:
    if not o["active"]:
        return "expired"
    return "active" if o.get("decided_tier") in (None, o["tier"]) else f"is {o['decided_tier']}"


_DO = {"set": _set, "clear": _clear, "list": _list}
_SAY = {"set": _say_set, "clear": _say_cleared, "list": _say_list}

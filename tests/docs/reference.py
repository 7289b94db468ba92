"""The reference pages that are made from the code. `python -m tests.docs.reference` writes them anew."""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autoscaler.api import ApiParts, create_app
from autoscaler.api.auth import TokenTable
from autoscaler.cli import parser
from autoscaler.cli.settings import Credential, Settings
from autoscaler.connectors.stores.sqlite import SqliteStores
from autoscaler.policy.exports import reference_tables
from autoscaler.telemetry import FleetMetrics

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
MADE = "This page is made from the code, and a test compares the two.\n"
CLI = """# Command line

Exit codes: 0 fine, 1 the answer is no (a check failed, the controller refused), 2 wrong usage or input. Errors are one
sentence on standard error. `ring` needs the core install only; what another command needs beyond it is told by the
extra's name.

Commands that ask a controller take its URL from `LORA_AUTOSCALER_URL` and the token from `LORA_AUTOSCALER_TOKEN` where
no flag says otherwise.
"""
API = """# REST API

Every call but `/healthz`, `/readyz` and `/metrics` needs `Authorization: Bearer TOKEN`. A reader reads and
acknowledges; an operator also commands. The running API describes itself at `/docs` and `/openapi.json`.

Errors are `application/problem+json` (RFC 9457) with `title`, `status` and a `detail` that says what to do: 401 no or
an unknown token, 403 role or fleet, 404 with the nearest name, 409 and 412 conflicts, 413 a body above 64 KiB, 400 and
422 what is wrong with the request, 503 with `Retry-After`.

What only a tick changes (status, tenants, adapters, groups, scores, costs, explanations) has the tick as its `ETag`;
with `If-None-Match` it is answered 304 until the next one.

Unknown numbers are `null`, never 0. Lists are `{items, next_cursor}`; give `next_cursor` back as `cursor` (as `since`
for decisions).
"""
METRICS = """# Our metrics

At `/metrics` of the API, without a token. Everything that a decision wants is exported in every mode, also in `advise`,
so that an HPA or KEDA may be the one that acts (`actuation: export`): scale on `lora_autoscaler_desired_replicas`.
Noisy neighbours have a series for the 20 highest tenants only; the API has all. What cannot be known has no series, or
-1 where the table says so. The values of the label `reason` are in [reasons](reasons.md).
"""
SETTINGS = """# Settings

How a controller process is wired: `lora-autoscaler run --policies DIR --settings FILE`. What it should do with a fleet
is in [policies](policy.md). The file is YAML and read once, at the start; unknown keys are refused. File names are
relative to it. Without a file every key has its default.

A tokens file is a list, and read again when it changes:

```yaml
- {name: ann, role: operator, sha256: 64 hex digits}
- {name: dashboard, role: reader, fleets: [chat], sha256: 64 hex digits}
```

Make a token, and what is kept of it: `openssl rand -hex 24 | tr -d '\\n' | tee token | sha256sum`.
"""


def commands(top: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Every command, those below others included, in the order of `--help`."""
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command
                yield from commands(command)


def cli_page() -> str:
    lines = [CLI, MADE]
    for command in commands(parser()):
        if any(isinstance(a, argparse._SubParsersAction) for a in command._actions):
            continue
        lines += [f"## `{command.prog}`", "", command.description or "", ""]
        if own := _own(command):
            lines += ["| argument | default | meaning |", "|---|---|---|", *map(_argument, own), ""]
    return "\n".join(lines)


def _own(command: argparse.ArgumentParser) -> list[argparse.Action]:
    return [a for a in command._actions if not isinstance(a, argparse._HelpAction)]


def _argument(action: argparse.Action) -> str:
    value = action.metavar or (f"{{{','.join(action.choices)}}}" if action.choices else action.dest.upper())
    shown = ", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {value}")
    if not action.option_strings:
        shown = f"{value}..." if action.nargs == "+" else str(value)
    default = action.default
    told = "required" if action.required else "" if default in (None, False, "") else f"`{default}`"
    return f"| `{shown.strip()}` | {told} | {_cell(action.help or '')} |"


def openapi() -> dict[str, Any]:
    """The API's own description, of an application without fleets."""
    with tempfile.TemporaryDirectory() as folder:
        stores = SqliteStores(Path(folder) / "state.db", lambda: 0.0)

        async def let_go(fleet: str) -> tuple[str, ...]:
            return ()

        parts = ApiParts(
            views=dict, hubs={}, overrides=stores.overrides, decisions=stores.decisions, audit=stores.audit,
            proposals=stores.proposals, detachments=stores.detachments, let_go=let_go, authenticator=TokenTable(()),
            metrics=FleetMetrics().registry, now_s=lambda: 0.0, ready=str,
        )  # fmt: skip
        app = create_app(parts)
        described = app.openapi()
        stores.close()
    return described


def api_page() -> str:
    told = openapi()
    lines = [API, MADE]
    for path, methods in told["paths"].items():
        for method, call in methods.items():
            lines += _call(method.upper(), path.replace(":path", ""), call, told)
    return "\n".join(lines)


def _call(method: str, path: str, call: dict[str, Any], told: dict[str, Any]) -> list[str]:
    lines = [f"## `{method} {path}`", "", call.get("description", "").strip(), ""]
    asked = [p for p in call.get("parameters", ()) if p["in"] != "path"]
    if asked:
        lines += ["| parameter | in | allowed |", "|---|---|---|"]
        lines += [f"| `{p['name']}` | {p['in']} | {_cell(_allowed(p['schema']))} |" for p in asked] + [""]
    body = call.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body:
        example = told["components"]["schemas"][body["$ref"].rpartition("/")[2]]["examples"][0]
        lines += ["```json", json.dumps(example), "```", ""]
    return lines


def _allowed(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_allowed(s) for s in schema["anyOf"] if s.get("type") != "null")
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2].lower()
    bounds = {"minimum": "at least", "maximum": "at most", "maxLength": "at most", "pattern": "like"}
    told = [schema.get("type", "")]
    told += [f"{word} {schema[name]}" for name, word in bounds.items() if name in schema]
    if schema.get("default", "") != "":
        told.append(f"default {schema['default']}")
    return ", ".join(told)


def metric_rows() -> list[tuple[str, str, str, str]]:
    """(name as a query writes it, type, labels, help) of every series of ours."""
    registry = FleetMetrics().registry
    rows = []
    for collector in registry._collector_to_names:
        family = next(iter(collector.collect()))
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in collector._labelnames)
        rows.append((name, family.type, labels, family.documentation))
    return rows


def metrics_page() -> str:
    lines = [METRICS, MADE, "| series | type | labels | meaning |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {labels} | {_cell(text)} |" for name, kind, labels, text in metric_rows()]
    return "\n".join([*lines, ""])


def settings_page() -> str:
    tables = reference_tables(Settings, "A settings file")
    credentials = reference_tables(Credential, "An entry of a tokens file")
    return "\n".join([SETTINGS, MADE, *tables, *credentials])


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


PAGES = {"cli.md": cli_page, "api.md": api_page, "metrics.md": metrics_page, "settings.md": settings_page}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")

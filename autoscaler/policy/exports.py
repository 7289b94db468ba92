"""A policy, and the policy format, as texts: YAML, JSON Schema, the documented default file, the reference page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import yaml

from autoscaler.policy.fields import Items, Key, Section, Table, keys, sections
from autoscaler.policy.model import API_VERSION, KIND, FleetPolicy, PolicyDocument
from autoscaler.policy.scalars import Either, Json, Kind

SCHEMA_ID: Final = "https://lora-autoscaler.io/schemas/v1alpha1/fleet-policy.json"
DEFAULT_HEADER: Final = """\
# Every key with its default. Only `apiVersion`, `kind`, `metadata.name` and `spec.baseModel` are required: a policy
# says what it wants different. Comments below a value of `none`, `[]` or `{}` show what may stand there instead.
# `lora-autoscaler policy check FILE` checks a policy, `lora-autoscaler policy schema` gives editors completion.
"""
REFERENCE_HEADER: Final = """\
# Policy reference

One file in `policies/` is one `FleetPolicy`: what an operator wants of one fleet. Keys that are left out have the
default below; unknown keys are refused, and so are anchors, tags, duplicate keys and more than one document a file.
Durations are numbers with a unit (`500ms`, `30s`, `5m`, `1h30m`, `2d`). Texts that YAML 1.1 takes for something else
(`on`, `no`, `1.10`, `18:00`) need quotes. `lora-autoscaler policy check FILE...` names all that is wrong at once.

A folder of policies is read whole: two files may name neither one fleet nor one target. A file that does not pass keeps
the policy that was there before, with a condition that says why.

A catalogue (`spec.adapters.file`, `configMap`) is a YAML list of the entries described below, or of bare ids:

```yaml
- {id: billing, tenant: acme, source: /adapters/billing-v2, rank: 16, revision: "2"}
- support # tenant `support`; its source is `spec.adapters.pathTemplate`
```

This page is made from the code, and a test compares the two.
"""


def as_document(policy: FleetPolicy) -> dict[str, Any]:
    """A policy as plain data with every key, as a file would have it."""
    spec = Section(FleetPolicy).write(policy)
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": policy.name}, "spec": spec}


def to_yaml(policy: FleetPolicy) -> str:
    """A policy as a file that reads back equal."""
    return yaml.safe_dump(as_document(policy), sort_keys=False, allow_unicode=True, width=110)


def json_schema() -> Json:
    """JSON Schema (draft 2020-12) of a policy file: keys, types, bounds, defaults, meanings."""
    definitions = {of.__name__: _object(of) for of in sections(PolicyDocument)}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, "title": KIND}
    return head | definitions.pop(PolicyDocument.__name__) | {"$defs": definitions}


def _object(of: type[Any]) -> Json:
    properties = {}
    for item in keys(of):
        schema = item.kind.schema() | {"description": item.about}
        properties[item.name] = (
            schema if item.default is None else schema | {"default": item.kind.write(item.default())}
        )
    needed = [item.name for item in keys(of) if item.default is None]
    return {
        "type": "object",
        "description": (of.__doc__ or "").split("\n")[0],
        "properties": properties,
        "required": needed,
        "additionalProperties": False,
    }


def default_file() -> str:
    """`policies/default.yaml`: every key, its meaning as a comment, and its default."""
    policy = FleetPolicy(name="example", base_model="llama-3.1-8b")
    lines = [DEFAULT_HEADER, f"apiVersion: {API_VERSION}", f"kind: {KIND}", "metadata:", "  name: example", "spec:"]
    return "\n".join([*lines, *_commented(FleetPolicy, policy, "  ")]) + "\n"


def _commented(of: type[Any], value: Any, lead: str) -> Iterator[str]:
    """A section's keys, each below its meaning, each line after `lead`. A value of None shows what may stand there."""
    for item in keys(of):
        yield from _wrapped(item, lead)
        body = _section(item.kind)
        held = getattr(value, item.field) if value is not None else item.default() if item.default else None
        if body is not None and isinstance(held, body):
            yield f"{lead}{item.name}:"
            yield from _commented(body, held, f"{lead}  ")
            continue
        yield f"{lead}{item.name}: {_flow(item.kind.write(held)) if item.default or value else 'REQUIRED'}"
        if body is not None:
            inner = item.kind.kind if isinstance(item.kind, Either) else item.kind
            title = {Items: "-", Table: "NAME:"}.get(type(inner))
            if title:
                yield f"{lead}#   {title}"
            yield from _commented(body, None, f"{lead}#     " if title else f"{lead}#   ")


def _flow(data: Any) -> str:
    return yaml.safe_dump(data, default_flow_style=True, width=10_000, sort_keys=False).removesuffix("\n...\n").strip()


def _wrapped(item: Key, indent: str) -> Iterator[str]:
    room = 116 - len(indent)
    line = ""
    for word in f"{item.about} {_limits(item.kind)}".strip().split():
        if line and len(line) + len(word) + 1 > room:
            yield f"{indent}# {line}"
            line = word
        else:
            line = f"{line} {word}".strip()
    yield f"{indent}# {line}"


def _limits(kind: Kind) -> str:
    """What is allowed, where a section does not say it itself."""
    return "" if _section(kind) is not None else f"({kind.allowed()})"


def _section(kind: Kind) -> type[Any] | None:
    while isinstance(kind, Either | Items | Table):
        kind = kind.kind
    return kind.of if isinstance(kind, Section) else None


def reference_page() -> str:
    """`docs/reference/policy.md`."""
    return "\n".join([REFERENCE_HEADER, *reference_tables(PolicyDocument, "A policy file")])


def reference_tables(of: type[Any], title: str) -> Iterator[str]:
    """A dataclass of keys and all below it, as Markdown tables; `title` heads the first."""
    return _tables(of, "", "", title)


def _tables(of: type[Any], path: str, about: str, title: str = "") -> Iterator[str]:
    rows, below = [], []
    for item in keys(of):
        at = f"{path}.{item.name}" if path else item.name
        body = _section(item.kind)
        if body is not None:
            below.append((body, at + _suffix(item.kind), item.about))
        rows.append(f"| `{item.name}` | {_default(item)} | {_cell(item)} |")
    yield f"## `{path}`\n\n{about}\n" if path else f"## {title}\n"
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    yield "\n".join(rows) + "\n"
    for body, at, meaning in below:
        yield from _tables(body, at, meaning)


def _suffix(kind: Kind) -> str:
    inner = kind.kind if isinstance(kind, Either) else kind
    return "[]" if isinstance(inner, Items) else ".NAME" if isinstance(inner, Table) else ""


def _default(item: Key) -> str:
    if item.default is None:
        return "required"
    body = _section(item.kind)
    value = item.kind.write(item.default())
    return "see below" if body is not None and isinstance(value, dict) and value else f"`{_flow(value)}`"


def _cell(item: Key) -> str:
    return f"{item.about} {_limits(item.kind)}".strip().replace("|", "\\|")


def schema_text() -> str:
    """What `policy schema` prints."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"

"""The reference pages say what the code does, all of it and nothing else."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from autoscaler.cli import parser
from autoscaler.domain.decisions import Reason
from autoscaler.policy.exports import reference_page
from tests.docs import reference

ROOT = Path(__file__).resolve().parents[2]
CONTRACT_ROUTES = {
    "GET /v1/fleets", "GET /v1/fleets/{fleet}", "GET /v1/fleets/{fleet}/tenants",
    "GET /v1/fleets/{fleet}/tenants/{tenant}", "PUT /v1/fleets/{fleet}/tenants/{tenant}/override",
    "DELETE /v1/fleets/{fleet}/tenants/{tenant}/override", "GET /v1/fleets/{fleet}/overrides",
    "GET /v1/fleets/{fleet}/adapters", "GET /v1/fleets/{fleet}/adapters/{adapter}", "GET /v1/fleets/{fleet}/groups",
    "PUT /v1/fleets/{fleet}/groups/{group}/pause", "GET /v1/fleets/{fleet}/ring", "GET /v1/fleets/{fleet}/ring/events",
    "POST /v1/fleets/{fleet}/ring/acks", "GET /v1/fleets/{fleet}/ring/owners", "GET /v1/fleets/{fleet}/decisions",
    "GET /v1/fleets/{fleet}/explain", "GET /v1/fleets/{fleet}/noisy-neighbours",
    "GET /v1/fleets/{fleet}/adapter-thrash", "GET /v1/fleets/{fleet}/costs", "GET /v1/fleets/{fleet}/proposals",
    "POST /v1/fleets/{fleet}/proposals/{proposal_id}/approve", "POST /v1/fleets/{fleet}/proposals/{proposal_id}/reject",
    "POST /v1/fleets/{fleet}/detach", "DELETE /v1/fleets/{fleet}/detach",
    "GET /v1/audit", "GET /metrics", "GET /healthz", "GET /readyz",
}  # fmt: skip
CONTRACT_METRICS = {
    "desired_replicas": {"group"}, "recommended_replicas": {"group"}, "current_replicas": {"group"},
    "tenants": {"tier"}, "tier_changes_total": {"from", "to", "reason"}, "ring_epoch": set(),
    "ring_moves_total": set(), "ring_churn_budget_remaining": set(), "adapter_loads_total": {"reason", "result"},
    "adapter_load_seconds": set(), "thrash_score": {"replica"}, "noisy_neighbour_score": {"tenant"},
    "decisions_total": {"step", "reason"}, "tick_duration_seconds": {"step"}, "signal_age_seconds": {"signal"},
    "forecast_error_ratio": {"horizon"}, "is_leader": set(), "router_epoch_lag": {"router"},
    "mode": {"mode"}, "conditions": {"condition"}, "ring_waiting": {"reason"}, "saturation_ratio": {"group"},
    "requests_per_second": set(), "ttft_p99_seconds": set(), "slo_missed_requests_ratio": set(),
    "slo_missed_tenants": set(), "forecast_coverage_ratio": {"horizon"},
    "forecast_loss_ratio": {"horizon", "quantile", "forecaster"},
    "forecast_serves_ratio": {"horizon", "quantile", "forecaster"}, "forecast_model_age_seconds": set(),
}  # fmt: skip
CONTRACT_COMMANDS = {
    "demo", "run", "policy check", "policy schema", "policy diff", "ring owners", "ring diff", "override set",
    "override clear", "override list", "explain", "detach", "doctor", "backtest",
}  # fmt: skip


def page(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")


def headings(text: str) -> set[str]:
    return set(re.findall(r"^## `(.+)`$", text, re.MULTILINE))


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_is_what_the_code_makes(name: str):
    assert page(name) == reference.PAGES[name](), "run `python -m tests.docs.reference`"


def test_the_policy_page_is_what_the_code_makes():
    assert page("policy.md") == reference_page()


def test_every_command_of_the_contract_is_there_and_documented_with_every_flag():
    described = headings(page("cli.md"))
    assert {f"lora-autoscaler {c}" for c in CONTRACT_COMMANDS} <= described
    for command in reference.commands(parser()):
        assert command.description, command.prog
        for action in command._actions:
            assert action.help or action.metavar == "COMMAND", (command.prog, action.dest)


def test_every_route_of_the_contract_is_there_with_its_method_and_no_other_is_undocumented():
    described = headings(page("api.md"))
    told = reference.openapi()
    routes = {f"{m.upper()} {p.replace(':path', '')}" for p, calls in told["paths"].items() for m in calls}
    assert routes == described
    assert routes >= CONTRACT_ROUTES


def test_every_call_says_what_it_does_and_every_body_has_an_example_that_fits_it():
    told = reference.openapi()
    for path, calls in told["paths"].items():
        for method, call in calls.items():
            assert call.get("description"), (method, path)
    bodies = {n: s for n, s in told["components"]["schemas"].items() if n.endswith("Request")}
    assert set(bodies) == {"OverrideRequest", "PauseRequest", "AckRequest", "DetachRequest"}
    for name, schema in bodies.items():
        example = schema["examples"][0]
        assert set(schema["required"]) <= set(example) <= set(schema["properties"]), name


def test_every_series_of_the_contract_is_there_with_its_labels_and_no_other():
    rows = {name: set(re.findall(r"`(\w+)`", labels)) for name, _, labels, _ in reference.metric_rows()}
    assert rows == {f"lora_autoscaler_{n}": labels | {"fleet"} for n, labels in CONTRACT_METRICS.items()}
    assert set(re.findall(r"^\| `(lora_autoscaler_\w+)`", page("metrics.md"), re.MULTILINE)) == set(rows)


def test_every_reason_is_explained_and_no_other():
    described = re.findall(r"^\| `(\w+)` \| (.+) \|$", page("reasons.md"), re.MULTILINE)
    names = [name for name, _ in described]
    assert len(names) == len(set(names))
    assert set(names) == {reason.value for reason in Reason}


def _text(node: ast.expr) -> str:
    """A constant text, or the constant start of an f-string."""
    first = node.values[0] if isinstance(node, ast.JoinedStr) else node
    return str(first.value) if isinstance(first, ast.Constant) else ""


def _condition_names() -> tuple[set[str], set[str]]:
    """Names that are surely conditions, and every text of the code that could be one."""
    sure, texts = set(), set()
    for path in (ROOT / "autoscaler").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value.partition("/")[0])
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Condition" and node.args:
                sure.add(_text(node.args[0]))
            if isinstance(node, ast.Subscript) and "conditions" in ast.unparse(node.value):
                sure.add(_text(node.slice))
    return {name.partition("/")[0] for name in sure if re.match(r"[A-Z][a-z]+[A-Z]", name)}, texts


def test_every_condition_is_explained_with_its_remedy_and_no_other():
    described = re.findall(r"^\| `(\w+)(?:/\.\.\.)?` \| (.+) \| (.+) \|$", page("conditions.md"), re.MULTILINE)
    names = {name for name, _, _ in described}
    sure, texts = _condition_names()
    assert sure <= names
    assert names <= texts
    assert len(sure) > 8, "the code is read for them"


def test_links_between_pages_lead_somewhere():
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for found in pages:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", found.read_text(encoding="utf-8")):
            if not target.startswith(("http", "mailto")):
                assert (found.parent / target).exists(), f"{found.relative_to(ROOT)} -> {target}"


@pytest.mark.parametrize("found", sorted(ROOT.glob("docs/how-to/*.md")), ids=lambda p: p.stem)
def test_commands_in_how_to_pages_are_commands_that_the_parser_takes(found: Path):
    """Each `lora-autoscaler ...` line of a shell block parses: flags, choices and their order."""
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", found.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.removeprefix("$ ").strip() for block in blocks for line in block.splitlines()]
    told = [line for line in lines if line.startswith("lora-autoscaler ")]
    assert told, f"{found.name} shows no command"
    for line in told:
        words = re.sub(r"\s+#.*$", "", line).split(" > ")[0].split(" | ")[0]
        parser().parse_args(shlex.split(words)[1:])

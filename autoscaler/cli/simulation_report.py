"""A simulation as one HTML page: what it cost, when it was late, who suffered, and which decisions mattered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from autoscaler.cli.simulation_charts import Dot, Line, Span, bars, heat, lines, scatter, stacked
from autoscaler.simulator.fleet.ports import EPOCH_S
from autoscaler.simulator.strategies.outcome import Outcome
from autoscaler.simulator.strategies.scenario import Scenario

_COLOURS = ("--teal", "--amber", "--violet", "--rose", "--blue", "--green", "--brown", "--grey")
_SHOWN_DECISIONS = 60


def page(outcomes: Sequence[Outcome], scenario: Scenario, policy: str) -> str:
    """The whole page; nothing in it is fetched from anywhere."""
    colour = {o.strategy: _COLOURS[i % len(_COLOURS)] for i, o in enumerate(outcomes)}
    parts = [
        _head(scenario, policy),
        _tiles(outcomes),
        _section(
            "What it cost, and how late it was", _frontier(outcomes, colour, scenario) + _table(outcomes, scenario)
        ),
        _section("Replicas over time", _replicas(outcomes, colour, scenario)),
        _section("Time to first token, p99", _latency(outcomes, colour, scenario)),
    ]
    if scenario.failures:
        parts.append(_section("What failed, and when", _failures(outcomes)))
    for outcome in outcomes:
        if outcome.strategy == "ours":
            parts += [_inside(outcome), _decisions(outcome)]
    parts.append(_section("Who suffered: p99 by tenant", "".join(_heat(o, scenario) for o in outcomes)))
    return f"<!doctype html><html lang=en><meta charset=utf-8>{_STYLE}<title>Simulation of {escape(policy)}</title>" + (
        f"<main>{''.join(parts)}</main></html>"
    )


def _head(scenario: Scenario, policy: str) -> str:
    trace = scenario.traffic.file.name if scenario.traffic.file else "generated traffic"
    told = (
        f"{escape(trace)}, {scenario.seconds / 3600:g} h, {len(scenario.trace.adapters):,} adapters; engines "
        f"{escape(scenario.profile)} with {scenario.limits.max_loras} adapter slots and "
        f"{scenario.limits.max_cpu_loras} adapters in host memory; a replica starts in {scenario.start_takes_s:.0f} s; "
        f"seed {scenario.seed}. The first {scenario.warmup_s / 60:.0f} minutes are not counted."
    )
    return f"<header><h1>Simulation of {escape(policy)}</h1><p>{told}</p></header>"


def _tiles(outcomes: Sequence[Outcome]) -> str:
    first = outcomes[0]
    others = [o for o in outcomes[1:] if o.strategy != "oracle"]
    cheaper = min(others, key=lambda o: o.gpu_hours, default=None)
    tiles = [
        (f"{first.gpu_hours:.1f}", f"replica-hours, {first.strategy}"),
        (f"{first.slo_attainment:.2%}", "first tokens in time"),
        (_seconds(first.ttft_p99_s), "p99 to first token"),
        (f"{first.adapter_loads_per_1000:.0f}", "adapter loads per 1,000 requests"),
    ]
    if cheaper is not None and first.gpu_hours:
        tiles.append((f"{cheaper.gpu_hours / first.gpu_hours:.2f}x", f"replica-hours of {cheaper.strategy}"))
    return '<div class="tiles">' + "".join(f"<div><b>{escape(v)}</b>{escape(k)}</div>" for v, k in tiles) + "</div>"


def _frontier(outcomes: Sequence[Outcome], colour: dict[str, str], scenario: Scenario) -> str:
    dots = [
        Dot(o.strategy, o.gpu_hours, o.ttft_p99_s, colour[o.strategy], o.slo_attainment >= scenario.objective_ratio)
        for o in outcomes
    ]
    note = (
        f"Down and left is better. A full dot kept {scenario.objective_ratio:.0%} of first tokens within "
        f"{scenario.target_ttft_s:g} s (the line)."
    )
    return scatter(dots, "replica-hours", "p99 to first token, s", scenario.target_ttft_s) + f"<p>{note}</p>"


def _table(outcomes: Sequence[Outcome], scenario: Scenario) -> str:
    heads = (
        "strategy",
        "replica-h",
        "in time",
        "p50",
        "p99",
        "loads/1,000",
        "moves",
        "tier changes",
        "resizes",
        "refused",
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td>{escape(cell)}</td>"
            for cell in (
                o.strategy, f"{o.gpu_hours:.2f}", f"{o.slo_attainment:.2%}", _seconds(o.ttft_p50_s),
                _seconds(o.ttft_p99_s), f"{o.adapter_loads_per_1000:.0f}", f"{o.moves}", f"{o.tier_changes}",
                f"{o.resizes}", f"{o.errors}",
            )
        )
        + "</tr>"
        for o in outcomes
    )  # fmt: skip
    return f"<table><tr>{''.join(f'<th>{h}</th>' for h in heads)}</tr>{rows}</table>"


def _replicas(outcomes: Sequence[Outcome], colour: dict[str, str], scenario: Scenario) -> str:
    drawn = [o for o in outcomes if o.timeline is not None and o.strategy != "group-per-tenant"]
    if not drawn or drawn[0].timeline is None:
        return ""
    at_s = drawn[0].timeline.at_s
    curves = [
        Line(o.strategy, [float(v) for v in o.timeline.ready], colour[o.strategy], step=True)
        for o in drawn
        if o.timeline
    ]
    rate = Line("requests/s", drawn[0].timeline.arrived_rps, "--grey")
    return lines(at_s, curves, "replicas that serve", spans=_spans(scenario)) + lines(at_s, [rate], "requests/s")


def _latency(outcomes: Sequence[Outcome], colour: dict[str, str], scenario: Scenario) -> str:
    drawn = [o for o in outcomes if o.timeline is not None]
    if not drawn or drawn[0].timeline is None:
        return ""
    curves = [Line(o.strategy, o.timeline.ttft_p99_s, colour[o.strategy]) for o in drawn if o.timeline]
    at_s, mark = drawn[0].timeline.at_s, scenario.target_ttft_s
    return lines(at_s, curves, "seconds (log)", log=True, mark=mark, spans=_spans(scenario))


def _spans(scenario: Scenario) -> list[Span]:
    return [
        Span(f"{f.kind.value}, {f.at_s / 60:g} min", f.at_s, min(f.at_s + f.seconds, scenario.seconds))
        for f in scenario.failures
    ]


def _failures(outcomes: Sequence[Outcome]) -> str:
    """A line a failure and strategy that it struck; shaded above."""
    rows = "".join(
        f"<tr><td>{s.at_s / 60:g} min</td><td>{s.kind.value}</td><td>{f'{s.seconds / 60:g} min' if s.seconds else '-'}"
        f"</td><td>{escape(o.strategy)}</td><td>{escape(s.replica) or '-'}</td><td>{s.refused}</td></tr>"
        for o in outcomes
        for s in o.failures
    )
    spared = [o.strategy for o in outcomes if not o.failures]
    note = f"<p>Not struck: {escape(', '.join(spared))}.</p>" if spared else ""
    heads = "".join(f"<th>{h}</th>" for h in ("when", "what", "for", "strategy", "replica", "requests it had"))
    return f'<table class="text"><tr>{heads}</tr>{rows}</table>{note}'


def _inside(outcome: Outcome) -> str:
    line = outcome.timeline
    if line is None:
        return ""
    layers = [
        Line(tier, [float(t.get(tier, 0)) for t in line.tiers], colour)
        for tier, colour in (("hot", "--rose"), ("warm", "--amber"), ("cold", "--blue"))
    ]
    waits = Line("waiting", [float(v) for v in line.waiting], "--rose")
    flying = Line("in flight", [float(v) for v in line.in_flight], "--teal")
    body = (
        stacked(line.at_s, layers, "tenants by tier")
        + bars(line.at_s, [float(v) for v in line.moves], "moves on the ring", "--violet")
        + bars(line.at_s, [float(v) for v in line.loads], "adapter loads", "--teal")
        + lines(line.at_s, [flying, waits], "requests")
    )
    return _section("Inside ours: tiers, moves, loads", body)


def _decisions(outcome: Outcome) -> str:
    shown = _weightiest(outcome)
    rows = "".join(
        f"<tr><td>{(d['at_s'] - EPOCH_S) / 60:.0f} min</td><td>{escape(str(d['subject']))}</td>"
        f"<td>{escape(str(d['reason']))}</td>"
        f"<td>{escape(str(d['before']))} &rarr; {escape(str(d['after']))}</td><td>{escape(str(d['message']))}</td></tr>"
        for d in shown
    )
    more = len(outcome.decisions) - len(shown)
    note = f"<p>{more} more are in the JSON report.</p>" if more > 0 else ""
    heads = "<tr><th>when</th><th>what</th><th>reason</th><th>change</th><th>why</th></tr>"
    return _section("Decisions that mattered", f'<table class="text">{heads}{rows}</table>{note}')


def _weightiest(outcome: Outcome) -> list[dict[str, Any]]:
    """Changes of replicas first, then of the ring, then of tiers, as many as are shown; in order of time."""
    weight = {"scale": 0, "ring": 1}
    chosen = sorted(outcome.decisions, key=lambda d: weight.get(str(d["step"]), 2))[:_SHOWN_DECISIONS]
    return sorted(chosen, key=lambda d: float(d["at_s"]))


def _heat(outcome: Outcome, scenario: Scenario) -> str:
    found = outcome.heat
    if found is None or not found.tenants or not found.at_s:
        return ""
    opened = " open" if outcome.strategy == "ours" else ""
    chart = heat(found.tenants, found.at_s, found.p99_s, scenario.target_ttft_s)
    return f"<details{opened}><summary>{escape(outcome.strategy)}</summary>{chart}</details>"


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _seconds(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f} s" if value < 10 else f"{value:.0f} s"


_STYLE = """<meta name=viewport content="width=device-width,initial-scale=1"><style>
:root{--ink:#1c2430;--soft:#5b6676;--line:#e3e7ec;--card:#fff;--ground:#f5f6f8;--teal:#0f9d8f;--amber:#d98a00;
--violet:#7a5af5;--rose:#d6456b;--blue:#2f7fd6;--green:#5b9a32;--brown:#9a6b4b;--grey:#8792a2}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa6b6;--line:#2b3340;--card:#171d26;--ground:#0f141b;
--teal:#35c2b3;--amber:#f0ad3d;--violet:#a08cff;--rose:#f0718f;--blue:#66a9f0;--green:#8cc665;--brown:#c79a78}}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:860px;margin:0 auto;padding:28px 18px 60px}
h1{font-size:26px;margin:0 0 6px}h2{font-size:17px;margin:0 0 10px}
header p,section p{color:var(--soft);margin:6px 0}section{background:var(--card);border:1px solid var(--line);
border-radius:12px;padding:18px 20px;margin-top:18px;overflow-x:auto}
svg{width:100%;height:auto;display:block;margin:4px 0}
svg text{font-size:11px;fill:var(--ink)}svg text.axis{fill:var(--soft);font-size:10.5px}
svg path{fill:none;stroke-width:1.8}
svg .grid{stroke:var(--line)}svg .mark{stroke:var(--rose);stroke-dasharray:3 4;opacity:.8}
svg .span{fill:var(--rose);opacity:.16}svg .instant{fill:var(--rose);opacity:.7}
.tiles{display:flex;flex-wrap:wrap;gap:12px;margin-top:18px}.tiles div{flex:1 1 130px;background:var(--card);
border:1px solid var(--line);border-radius:12px;padding:12px 14px;color:var(--soft);font-size:13px}
.tiles b{display:block;font-size:23px;color:var(--ink)}.legend span{margin-right:14px;font-size:12.5px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:5px}
table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:5px 8px;border-bottom:1px solid var(--line)}th{color:var(--soft);font-weight:500}
table.text td:nth-child(-n+4),td:first-child{white-space:nowrap}
th:first-child,td:first-child,table.text td,table.text th{text-align:left;vertical-align:top}
details{margin:8px 0}summary{cursor:pointer;color:var(--soft)}</style>"""

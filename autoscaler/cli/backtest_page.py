"""A backtest's report as one HTML page that needs nothing else: what was foreseen, what would have been decided."""

from __future__ import annotations

from html import escape
from typing import Any

from autoscaler.cli.backtest_charts import (
    calibration_chart,
    coverage_chart,
    error_chart,
    rate_chart,
    replica_chart,
    strip_chart,
    tier_chart,
)

_STYLE = """
:root { color-scheme: light dark; --ink: light-dark(#17212b, #e6ebf0); --soft: light-dark(#5b6773, #9aa7b3);
--paper: light-dark(#fbfcfd, #10161c); --card: light-dark(#fff, #18212a); --edge: light-dark(#e3e8ec, #2a3640);
--blue: light-dark(#2b8cc4, #58b4e8); --orange: light-dark(#c77700, #f0ad3d); --green: light-dark(#00846a,
#35c8a0); --pink: light-dark(#b0568c, #e39ac5); --grey: #8a949e; } * { box-sizing: border-box; } body { margin:
0; background: var(--paper); color: var(--ink); font: 15px/1.55 system-ui, sans-serif; } main { max-width:
1040px; margin: 0 auto; padding: 32px 20px 64px; } h1 { font-size: 1.65rem; margin: 0 0 4px; letter-spacing:
-.01em; } h2 { font-size: 1.1rem; margin: 0 0 2px; } p { margin: 0 0 12px; color: var(--soft); max-width: 76ch;
} section { background: var(--card); padding: 20px 22px; border: 1px solid var(--edge); border-radius: 12px;
margin-top: 18px; } svg { width: 100%; height: auto; display: block; } .tiles { display: grid;
grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin-top: 20px; } .tile { background:
var(--card); border: 1px solid var(--edge); border-radius: 12px; padding: 12px 16px; } .tile b { display: block;
font-size: 1.5rem; font-weight: 650; font-variant-numeric: tabular-nums; } .tile span { color: var(--soft);
font-size: .85rem; } .key { display: flex; flex-wrap: wrap; gap: 4px 18px; color: var(--soft); font-size:
.85rem; margin-bottom: 6px; } .key i { display: inline-block; width: 18px; height: 0; border-top: 3px solid;
margin-right: 6px; vertical-align: middle; } .key i.box { height: 11px; border: 0; border-radius: 2px; opacity:
.8; } .grid { stroke: var(--edge); stroke-width: 1; } .tick { fill: var(--soft); font-size: 11px; } .head {
fill: var(--ink); font-size: 12px; font-weight: 600; } path { fill: none; stroke-linejoin: round; } .came {
stroke: var(--ink); stroke-width: 1.4; } .said { stroke: var(--blue); stroke-width: 1.8; } .band { fill:
var(--blue); opacity: .22; stroke: none; } .target { fill: var(--green); opacity: .16; } .diagonal { stroke:
var(--grey); stroke-dasharray: 4 4; } .line { stroke-width: 2; } .l0 { stroke: var(--blue); } .l1 { stroke:
var(--orange); stroke-dasharray: 7 3; } .l2 { stroke: var(--green); stroke-dasharray: 3 3; } .l3 { stroke:
var(--pink); stroke-dasharray: 9 3 2 3; } .dot { stroke-width: 0; } .dot.l0 { fill: var(--blue); } .dot.l1 {
fill: var(--orange); } .dot.l2 { fill: var(--green); } .dot.l3 { fill: var(--pink); } .b0 { fill: var(--blue); }
.b1 { fill: var(--grey); opacity: .55; } .tier.hot { fill: var(--orange); } .tier.warm { fill: var(--blue);
opacity: .65; } .tier.cold { fill: var(--grey); opacity: .25; } table { border-collapse: collapse; width: 100%;
font-variant-numeric: tabular-nums; font-size: .88rem; } td, th { padding: 4px 10px; text-align: right;
border-bottom: 1px solid var(--edge); } th { color: var(--soft); font-weight: 500; } td:first-child,
th:first-child, td:nth-child(2), th:nth-child(2) { text-align: left; } li { color: var(--soft); }
"""
_COLOURS = ("--blue", "--orange", "--green", "--pink")
_MOST_CHANGES = 200


def page(report: dict[str, Any]) -> str:
    """The page of a report (`backtest --output` writes the same as JSON)."""
    horizons = list(report["methods"]["served"])
    parts = [_head(report), _tiles(report), _rates(report), _errors(report), _bands(report, horizons), _tiers(report)]
    parts += [_replicas(report)] if report["scale"] is not None else []
    parts += [_changes(report), _notes(report)]
    title = f"Backtest of {escape(report['fleet'])}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style><main>{''.join(parts)}</main></html>\n"
    )


def _head(report: dict[str, Any]) -> str:
    learnt, judged = (report[k] * report["bucket_s"] / 86400 for k in ("learnt_buckets", "judged_buckets"))
    return (
        f"<h1>Backtest of {escape(report['fleet'])}</h1><p>{report['tenants']} tenants with {report['adapters']} "
        f"adapters: {judged:.1f} days judged, after {learnt:.1f} days that were only learnt from. Everything was "
        "foreseen with what was known at that moment.</p>"
    )


def _tiles(report: dict[str, Any]) -> str:
    horizons = list(report["methods"]["served"])
    first, last = horizons[0], horizons[-1]
    served, peer = report["methods"]["served"], report["methods"]["last_value"]
    tiles = [
        (_share(served[first]["all"]["coverage90"]), f"inside the 90 % bands, {_minutes(first)} ahead"),
        (_number(served[last]["all"]["wape"]), f"error, {_minutes(last)} ahead"),
        (_number(peer[last]["all"]["wape"]), f"the last value's error, {_minutes(last)} ahead"),
        (_number(served[first]["all"]["provisioned_ratio"]), "band over volume"),
        (_share(report["tiers"]["churn_per_day_ratio"]), "of tenants change tier in a day"),
        (_share(report["unknown_ratio"]), "of the recording is unknown"),
    ]
    inner = "".join(f'<div class="tile"><b>{value}</b><span>{text}</span></div>' for value, text in tiles)
    return f'<div class="tiles">{inner}</div>'


def _rates(report: dict[str, Any]) -> str:
    rate = report["fleet_rate"]
    chart = rate_chart(rate["ends_s"], rate["actual_rps"], rate["mean_rps"], rate["p90_rps"])
    key = _key(("--ink", "what came"), ("--blue", "expected a bucket before")) + _boxes(
        ("--blue", "up to its 90 % band")
    )
    return _section("What came, and what was expected", "Requests per second of all tenants together.", key, chart)


def _errors(report: dict[str, Any]) -> str:
    rows = []
    for horizon, pools in report["methods"]["served"].items():
        for pool, s in pools.items():
            peer = report["methods"]["last_value"][horizon][pool]
            cells = (
                s["wape"],
                peer["wape"],
                s["pinball90"],
                peer["pinball90"],
                s["coverage90"],
                s["provisioned_ratio"],
            )
            inner = "".join(f"<td>{_number(c)}</td>" for c in cells)
            rows.append(f"<tr><td>{_minutes(horizon)}</td><td>{pool}</td>{inner}</tr>")
    heads = ("ahead", "pool", "error", "last value's", "pinball .9", "last value's", "in band", "band / volume")
    table = f"<table><tr>{''.join(f'<th>{h}</th>' for h in heads)}</tr>{''.join(rows)}</table>"
    text = (
        "Absolute error over volume. Head: tenants of 1 request/s and more while it was learnt; tail: below 0.1. The "
        "last value is what a controller without a forecast goes by."
    )
    key = _boxes(("--blue", "served"), ("--grey", "last value"))
    return _section("Errors by horizon and pool", text, key, error_chart(report["methods"]) + table)


def _bands(report: dict[str, Any], horizons: list[str]) -> str:
    pools = list(report["calibration"][horizons[0]])
    by_pool = _key(*((_COLOURS[i % 4], pool) for i, pool in enumerate(pools)))
    by_horizon = _key(*((_COLOURS[i % 4], _minutes(h)) for i, h in enumerate(horizons)))
    text = (
        "A band is honest where as much comes below it as it says: on the diagonal. Silence pulls the median's point "
        "up, since whoever is often silent is at or below any median. The shaded stripe by day is 88 to 92 %."
    )
    charts = calibration_chart(report["calibration"])
    charts += by_horizon + coverage_chart(report["coverage_by_day"], horizons) if report["coverage_by_day"] else ""
    return _section("Do the bands hold?", text, by_pool, charts)


def _tiers(report: dict[str, Any]) -> str:
    tiers, ends_s = report["tiers"], report["fleet_rate"]["ends_s"]
    key = _boxes(("--orange", "hot"), ("--blue", "warm"), ("--grey", "cold"))
    largest = tiers["largest"]
    charts = tier_chart(ends_s, tiers["counts"]) + strip_chart(ends_s, largest["tenants"], largest["tiers"])
    text = f"{len(tiers['changes'])} changes in all. Below, each of the largest tenants is a strip."
    return _section("Tiers that would have been decided", text, key, charts)


def _replicas(report: dict[str, Any]) -> str:
    scale, ends_s = report["scale"], report["fleet_rate"]["ends_s"]
    parts = []
    for name, group in scale["groups"].items():
        needed = [t / scale["capacity_tokens_per_s"] for t in group["tokens_per_s"]]
        parts.append(
            f"<p><b>{escape(name)}</b>: {group['replica_hours']:.0f} replica-hours, {group['changes']} changes; more "
            f"came than its replicas carry in {group['short_buckets_ratio']:.2%} of buckets.</p>"
            + replica_chart(ends_s, group["replicas"], needed)
        )
    text = f"A replica is taken to carry {scale['capacity_tokens_per_s']:g} tokens/s."
    key = _key(("--blue", "replicas decided"), ("--ink", "replicas that what came would fill"))
    return _section("Replicas that would have been decided", text, key, "".join(parts))


def _changes(report: dict[str, Any]) -> str:
    changes = report["tiers"]["changes"]
    first_s = report["start_s"]
    rows = "".join(
        f"<tr><td>{(c['at_s'] - first_s) / 3600:.1f} h</td><td>{escape(c['tenant'])}</td><td>{c['from']}</td>"
        f"<td>{c['to']}</td><td>{c['reason']}</td></tr>"
        for c in changes[:_MOST_CHANGES]
    )
    more = f"<p>{len(changes) - _MOST_CHANGES} more are in the JSON.</p>" if len(changes) > _MOST_CHANGES else ""
    table = f"<details><summary>Every change</summary><table>{rows}</table>{more}</details>"
    models = "".join(
        f"<li>{escape(m['version'])}, after {(m['at_s'] - first_s) / 86400:.1f} days</li>" for m in report["models"]
    )
    trained = f"<p>Models trained on the way, each on the past alone:</p><ul>{models}</ul>" if models else ""
    return _section("Record", "", "", table + trained)


def _notes(report: dict[str, Any]) -> str:
    inner = "".join(f"<li>{escape(note)}</li>" for note in report["notes"])
    return f"<section><h2>What this does not know</h2><ul>{inner}</ul></section>"


def _section(title: str, text: str, key: str, inner: str) -> str:
    told = f"<p>{text}</p>" if text else ""
    return f"<section><h2>{title}</h2>{told}{key}{inner}</section>"


def _key(*entries: tuple[str, str]) -> str:
    inner = "".join(f'<span><i style="border-color: var({colour})"></i>{text}</span>' for colour, text in entries)
    return f'<div class="key">{inner}</div>'


def _boxes(*entries: tuple[str, str]) -> str:
    inner = "".join(
        f'<span><i class="box" style="background: var({colour})"></i>{text}</span>' for colour, text in entries
    )
    return f'<div class="key">{inner}</div>'


def _minutes(horizon: str) -> str:
    return f"{float(horizon) / 60:g} min"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"

"""What can be checked without a controller: files, and the Prometheus, routers and folders that settings name."""

from __future__ import annotations

import asyncio
import email.utils
import os
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from autoscaler.cli.credentials import TokensFile
from autoscaler.cli.errors import UsageError, read_bytes
from autoscaler.cli.findings import Finding, fine, note, wrong
from autoscaler.cli.policies import parse_folder
from autoscaler.cli.policy_check import catalogue_errors, policy_files
from autoscaler.cli.settings import FleetWiring, Platform, Settings, Source, parse_settings
from autoscaler.cli.sources import prometheus_settings
from autoscaler.connectors.metrics.conditions import NEEDED, nearest
from autoscaler.connectors.metrics.connection import PrometheusConnection
from autoscaler.connectors.metrics.exposition import metric_names
from autoscaler.connectors.metrics.presets import PRESETS, series_names
from autoscaler.connectors.metrics.router_presets import ROUTERS, RouterPreset
from autoscaler.domain.signals import Missing
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.nodes import PolicyError

SKEW_S = 5.0
_TIMEOUT_S = 10.0


def check_files(policies: Path | None, settings: Path | None) -> list[Finding]:
    """Every check that files allow. Raises UsageError for files that are not there."""
    findings: list[Finding] = []
    valid = _policies(policies, findings) if policies is not None else []
    told = _settings(settings, findings)
    if told is not None:
        findings += [*_state(told), *_tokens(told), *_unused(told, valid)]
        if told.platform is Platform.KUBERNETES:
            # With the cluster's client, which only those need who run there.
            from autoscaler.cli.doctor_cluster import check_cluster

            findings += check_cluster(told, valid)
        findings += _metrics(told, valid)
    return findings


def check_gates(policies: Path, settings: Path | None) -> list[Finding]:
    """What would keep pods from becoming ready after an uninstall. Raises UsageError for files that are not there."""
    findings: list[Finding] = []
    valid, told = _policies(policies, findings), _settings(settings, findings)
    if told is not None and told.platform is Platform.KUBERNETES:
        from autoscaler.cli.doctor_cluster import check_uninstall

        findings += check_uninstall(told, valid)
    return findings


def _policies(path: Path, findings: list[Finding]) -> list[FleetPolicy]:
    contents = {str(p): read_bytes(p, "a policy file") for p in policy_files([path])}
    read = parse_folder(contents)
    catalogues = catalogue_errors(read.policies)
    findings += _faults("policy", (e for errors in (*read.errors.values(), *catalogues.values()) for e in errors))
    findings += (fine("policy", f, f"fleet {p.name}, mode {p.mode.value}") for f, p in read.policies.items())
    return list(read.policies.values())


def _settings(path: Path | None, findings: list[Finding]) -> Settings | None:
    if path is None:
        return Settings()
    parsed = parse_settings(read_bytes(path, "a settings file"), path)
    if isinstance(parsed, Settings):
        findings.append(fine("settings", str(path), f"platform {parsed.platform.value}"))
        return parsed
    findings += _faults("settings", parsed)
    return None


def _faults(check: str, errors: Iterable[PolicyError]) -> Iterator[Finding]:
    for error in errors:
        where = str(error).removesuffix(f": {error.message}")
        yield wrong(check, where, error.message, f"Allowed: {error.allowed}." if error.allowed else "Mend the file.")


def _state(settings: Settings) -> Iterator[Finding]:
    folder = settings.path(settings.state)
    there = next(p for p in (folder, *folder.resolve().parents) if p.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        yield fine("state", str(folder), "can be written")
    else:
        yield wrong("state", str(folder), f"{there} cannot be written", "Let this user write it, or set `state`.")


def _tokens(settings: Settings) -> Iterator[Finding]:
    if settings.tokens is None:
        yield note(
            "tokens", "none", "two tokens are made at each start and printed, unless the cluster knows or keeps any",
            "Set `tokens` to a file of credentials, so that they outlive a restart.",
        )  # fmt: skip
        return
    path = settings.path(settings.tokens)
    try:
        TokensFile(path, time.time)
    except UsageError as error:
        yield wrong("tokens", str(path), str(error), "Mend the file; the settings reference describes its entries.")
        return
    yield fine("tokens", str(path), "valid")


def _unused(settings: Settings, policies: list[FleetPolicy]) -> Iterator[Finding]:
    """Wiring of fleets that no policy names: most often a misspelling."""
    names = [p.name for p in policies]
    for fleet in settings.fleets:
        if names and fleet not in names:
            yield wrong(
                "settings",
                f"fleets.{fleet}",
                "no policy has this fleet",
                f"Name one of {', '.join(names)}, or drop it.",
            )


def _metrics(settings: Settings, policies: list[FleetPolicy]) -> Iterator[Finding]:
    prometheus = settings.metrics.prometheus
    if settings.metrics.source is Source.PROMETHEUS and prometheus is not None:
        with closing(PrometheusConnection(prometheus_settings(settings, prometheus))) as connection:
            yield from asyncio.run(_prometheus(connection, settings, policies))
        return
    for policy in policies:
        yield from _routers(settings, policy.name, settings.fleet(policy.name))


async def _prometheus(
    connection: PrometheusConnection, settings: Settings, policies: list[FleetPolicy]
) -> list[Finding]:
    url = connection.settings.url
    now_s = await connection.now_s()
    if isinstance(now_s, Missing):
        remedy = "Check the URL, the credentials and the certificate authority in `metrics.prometheus`."
        return [wrong("prometheus", url, now_s.why, remedy)]
    found = [fine("prometheus", url, "answers"), clock_finding("prometheus", url, now_s)]
    names = await connection.metric_names()
    if isinstance(names, Missing):
        remedy = "Let this credential read `/api/v1/label/__name__/values`."
        return [*found, wrong("prometheus", url, f"its metric names cannot be read: {names.why}", remedy)]
    router = ROUTERS[settings.metrics.router]
    for policy in policies:
        found += [*_engine_metrics(policy, names), *_router_metrics(policy.name, router, names)]
        found += [await _own_query(connection, policy, s, q) for s, q in policy.signals.queries.items()]
    return found


async def _own_query(connection: PrometheusConnection, policy: FleetPolicy, signal: str, query: str) -> Finding:
    subject = f"{policy.name} signals.queries.{signal}"
    answer = await connection.query(query)
    if isinstance(answer, Missing):
        return wrong("query", subject, answer.why, "Mend the expression in the policy.")
    if not answer.rows:
        return wrong("query", subject, "it finds nothing now", "Try the expression in Prometheus; check its labels.")
    return fine("query", subject, f"{len(answer.rows)} series")


def _engine_metrics(policy: FleetPolicy, names: Collection[str]) -> Iterator[Finding]:
    """Each signal of the engine preset that the policy does not state itself."""
    for signal, source in PRESETS[policy.engine.preset].sources.items():
        if signal in policy.signals.queries:
            continue
        wanted = list(dict.fromkeys(series_names(source)))
        there = [name for name in wanted if name in names]
        subject = f"{policy.name} {signal}"
        if there:
            yield fine("metric", subject, there[0])
        elif signal in NEEDED:
            yield wrong(
                "metric", subject, f"no series named {wanted[0]}{nearest(wanted[0], names)}",
                f"Scrape the engines, or state the signal in `signals.queries` as PromQL ({signal}).",
            )  # fmt: skip
        else:
            yield note("metric", subject, f"no series named {wanted[0]}{nearest(wanted[0], names)}; decided without it")


def _router_metrics(fleet: str, router: RouterPreset, names: Collection[str]) -> Iterator[Finding]:
    for name in dict.fromkeys(filter(None, (*router.counters(), router.ttft_buckets, router.in_flight))):
        if name in names:
            yield fine("metric", f"{fleet} router", name)
        elif name == router.requests:
            yield wrong(
                "metric", f"{fleet} router", f"no series named {name}{nearest(name, names)}: demand is unknown",
                "Scrape the router, set `metrics.router` to its kind, or state the request rate in `signals.queries`. "
                "A router that has served no request yet shows none either.",
            )  # fmt: skip
        else:
            yield note("metric", f"{fleet} router", f"no series named {name}{nearest(name, names)}")


def _routers(settings: Settings, fleet: str, wiring: FleetWiring) -> Iterator[Finding]:
    """Routers' pages, where metrics are scraped."""
    router = ROUTERS[settings.metrics.router]
    pages = dict(wiring.routers)
    if wiring.envoy is not None:
        pages.setdefault(f"envoy-{fleet}", f"http://{wiring.envoy.host}:{wiring.envoy.admin_port}/stats/prometheus")
    if not pages:
        yield wrong(
            "router", fleet, "no router is named, so demand per tenant is unknown and nothing is ever scaled in",
            f"Name its metrics page in `fleets.{fleet}.routers`, or an `envoy`, or use Prometheus.",
        )  # fmt: skip
    for name, url in pages.items():
        starts = wiring.envoy is not None and wiring.envoy.start and name == f"envoy-{fleet}"
        if starts:
            yield note("router", name, "is started by `run`, so it was not asked")
            continue
        answer = _page(url)
        if isinstance(answer, str):
            yield wrong("router", name, f"{url} {answer}", "Start the router, or mend its address.")
        else:
            yield clock_finding("router", name, answer[1])
            yield from _router_metrics(fleet, router, metric_names(answer[0]))


def _page(url: str) -> tuple[str, float] | str:
    """(the page, the server's clock), or why there is none."""
    try:
        answer = httpx.get(url, timeout=_TIMEOUT_S)
    except httpx.HTTPError as error:
        return f"cannot be reached: {error}"
    if not answer.is_success:
        return f"answers {answer.status_code}"
    return answer.text, server_clock_s(answer)


def server_clock_s(answer: Any) -> float:
    """The server's clock by its Date header, in whole seconds; ours where it has none."""
    try:
        return email.utils.parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except (TypeError, ValueError):
        return time.time()


def clock_finding(check: str, subject: str, server_s: float) -> Finding:
    """Whether a server's clock is ours."""
    skew_s = server_s - time.time()
    if abs(skew_s) > SKEW_S:
        return wrong(check, subject, f"its clock is {skew_s:+.0f} s from this machine's", "Set both by NTP.")
    return fine(check, subject, f"its clock is within {SKEW_S:g} s of this machine's")

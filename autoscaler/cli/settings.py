"""Settings: how a controller process is wired. What it should do with a fleet is in policies.

The dataclasses are the schema, as with policies: reading, defaults and the reference page walk their fields.
"""

# ruff: noqa: RUF009 - `key` makes a dataclass field

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from autoscaler.policy.fields import Items, Section, Table, key, required, section
from autoscaler.policy.groups import NAME, OBJECT
from autoscaler.policy.nodes import PolicyError, Report
from autoscaler.policy.reading import read_yaml
from autoscaler.policy.scalars import Choice, Duration, Either, Flag, Integer, Text
from autoscaler.policy.steps import LABEL

FILE = Text("", "a file name, relative to the settings file", 4096)
URL = Text(r"https?://[^\s]+", "an http or https URL", 2048)
HOST = Text(r"[A-Za-z0-9.:_-]+", "a host name or address")
PORT = Integer(1, 65_535)


class Platform(StrEnum):
    """Where replicas run. `local`: simulated engines of this process."""

    LOCAL = "local"
    KUBERNETES = "kubernetes"


class Source(StrEnum):
    """Where metrics come from."""

    SCRAPE = "scrape"
    PROMETHEUS = "prometheus"


class RouterKind(StrEnum):
    """Whose names the routers' series have."""

    ENVOY = "envoy"
    LLM_D = "llm-d"
    GIE_OBJECTIVE = "gie-objective"
    GIE_EXTENSION = "gie-extension"
    GIE_MODEL = "gie-model"


class LogFormat(StrEnum):
    """Lines for people, or JSON objects."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least that is logged. Decisions are `info`."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Role(StrEnum):
    """What a credential may do: read, or read and command."""

    READER = "reader"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOn:
    """Where the API listens."""

    host: str = key(HOST, "127.0.0.1", "Address; `0.0.0.0` lets other machines in.")
    port: int = key(PORT, 8080, "Port.")
    cert_file: str | None = key(
        Either("none", FILE), None, "The server's certificate, with its chain: then the API speaks TLS only."
    )
    key_file: str | None = key(Either("none", FILE), None, "Its key, where it is not in `certFile`.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    """What is logged, to standard error."""

    format: LogFormat = key(Choice(LogFormat), LogFormat.TEXT, "Lines for people, or one JSON object a line.")
    level: LogLevel = key(Choice(LogLevel), LogLevel.INFO, "The least that is logged; decisions are `info`.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """How Prometheus, Thanos, Mimir or VictoriaMetrics is reached. Secret files are read again at each query."""

    url: str = required(URL, "With the base path of those that have one: `http://mimir/prometheus`.")
    bearer_token_file: str | None = key(Either("none", FILE), None, "Holds a bearer token.")
    username: str = key(Text("", "a user name", least_bytes=0), "", "For basic authentication.")
    password_file: str | None = key(Either("none", FILE), None, "Holds its password.")
    ca_file: str | None = key(Either("none", FILE), None, "Certificate authority to trust instead of the system's.")
    cert_file: str | None = key(Either("none", FILE), None, "The client's certificate.")
    key_file: str | None = key(Either("none", FILE), None, "Its key, where it is not in `certFile`.")
    headers: Mapping[str, str] = key(
        Table(Text(r"[A-Za-z0-9-]+", "a header's name", 120), Text("", "a header's value", 1024), 32),
        dict,
        "Sent with every query, such as `X-Scope-OrgID: team-a`.",
    )
    matchers: Mapping[str, str] = key(
        Table(LABEL, Text("", "a label value", 1024), 32), dict, "Labels put into every query: `cluster: eu-1`."
    )
    replica_labels: tuple[str, ...] = key(
        Items(LABEL, 8),
        ("prometheus_replica", "__replica__", "replica"),
        "Labels in which the copies of a highly available Prometheus differ, and nothing else does.",
    )
    timeout_s: float = key(Duration(0.1, 300), 10.0, "Of one query.")
    retries: int = key(Integer(0, 10), 2, "After a failed connection or the answer of an overloaded server.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsFrom:
    """Where metrics come from."""

    source: Source = key(
        Choice(Source), Source.SCRAPE, "`scrape`: read engines and routers directly. `prometheus`: query it."
    )
    router: RouterKind = key(Choice(RouterKind), RouterKind.ENVOY, "Whose names the routers' series have.")
    prometheus: Prometheus | None = key(Either("none", Section(Prometheus)), None, "Needed with `source: prometheus`.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Envoy:
    """A stock Envoy that is fed by files. Its admin port must not be reachable from outside."""

    directory: str = required(FILE, "Folder for its bootstrap and the files that it watches.")
    port: int = key(PORT, 8000, "Where clients send.")
    admin_port: int = key(PORT, 9901, "Where it is asked for statistics and versions.")
    host: str = key(HOST, "127.0.0.1", "The address of both.")
    start: bool = key(Flag(), False, "Run it from here, and end it with this process; else somebody else does.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEngines:
    """Simulated engines of this process, with `platform: local`."""

    replicas: int = key(Integer(1, 256), 2, "Warm replicas at the start; the policy's bounds hold from then on.")
    port_base: int | None = key(Either("auto", PORT), None, "First port; `auto`: free ones.")


@dataclass(frozen=True, slots=True, kw_only=True)
class InCluster:
    """How the cluster is reached, and where our objects in it are."""

    kubeconfig: str | None = key(
        Either("auto", FILE), None, "A kubeconfig; `auto`: the pod's service account, else the user's own."
    )
    namespace: str | None = key(
        Either("auto", OBJECT), None, "Of the Lease, ConfigMaps and targets without one; `auto`: the pod's own."
    )
    lease: str = key(OBJECT, "lora-autoscaler", "The Lease's name; instances with the same one lead by turns.")
    checkpoint_every_s: float = key(Duration(1, 3600), 30.0, "How often saved state is written, at most.")
    token_review: bool = key(
        Flag(), False, "Ask the cluster whose a token is, and what its owner may with `fleets.lora-autoscaler.io`."
    )
    events: bool = key(Flag(), False, "Tell decisions as Events on the targets, too.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """Where stock Envoys ask for the ring (incremental ADS over gRPC). Plain text: keep it inside the cluster."""

    host: str = key(HOST, "127.0.0.1", "Address; `0.0.0.0` lets other machines in.")
    port: int = required(PORT, "Port; docs/envoy.md has the bootstrap of an Envoy that asks there.")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetWiring:
    """What belongs to one fleet."""

    routers: Mapping[str, str] = key(
        Table(Text(r"[A-Za-z0-9._-]+", "a router's name", 120), URL, 1_000),
        dict,
        "With `source: scrape`: router -> URL of its metrics page. An `envoy` below is read without being named here.",
    )
    envoy: Envoy | None = key(Either("none", Section(Envoy)), None, "A stock Envoy on this machine.")
    discovery: Discovery | None = key(
        Either("none", Section(Discovery)), None, "With `platform: kubernetes`: stock Envoys ask here for the ring."
    )
    engine_api_key_file: str | None = key(Either("none", FILE), None, "Holds the engines' API key.")
    engine_port: int | None = key(
        Either("auto", PORT), None, "With `platform: kubernetes`; `auto`: the pod's port `http`, else its first."
    )
    local: LocalEngines = section(LocalEngines, "With `platform: local`.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a controller process is wired. `folder` is where relative file names start from."""

    listen: ListenOn = section(ListenOn, "Where the API listens.")
    state: str = key(FILE, "lora-autoscaler-state", "Folder for what must survive a restart: state, lease, rings.")
    tokens: str | None = key(
        Either("none", FILE),
        None,
        "A file of credentials (below), read again when it changes. `none`: two tokens are made at each start and "
        "printed; in a cluster they are kept in the Secret `<kubernetes.lease>-tokens`, where there is one.",
    )
    platform: Platform = key(Choice(Platform), Platform.LOCAL, "Where replicas run.")
    kubernetes: InCluster = section(InCluster, "With `platform: kubernetes`.")
    metrics: MetricsFrom = section(MetricsFrom, "Where metrics come from.")
    fleets: Mapping[str, FleetWiring] = key(
        Table(NAME, Section(FleetWiring), 256), dict, "By the fleet's name; a fleet that is not named has the defaults."
    )
    lease_s: float = key(Duration(1, 600), 15.0, "How long leadership holds without renewal.")
    log: Logging = section(Logging, "What is logged.")

    folder: Path = field(default=Path())

    def path(self, name: str) -> Path:
        """A file that the settings name."""
        return self.folder / name

    def fleet(self, name: str) -> FleetWiring:
        """One fleet's wiring."""
        return self.fleets.get(name, FleetWiring())


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """One entry of the tokens file, which is a list of them. The token itself is kept nowhere."""

    name: str = required(Text("", "a name, for the audit"), "Whose it is: shown in the audit and with overrides.")
    role: Role = required(Choice(Role), "`reader`, or `operator`, who may command too.")
    sha256: str = required(
        Text(r"[0-9a-f]{64}", "64 lower-case hex digits", 64), "SHA-256 of the token: `printf %s TOKEN | sha256sum`."
    )
    fleets: tuple[str, ...] | None = key(Either("all", Items(NAME, 256)), None, "Which fleets it reaches.")


def parse_settings(content: bytes, file: Path) -> Settings | tuple[PolicyError, ...]:
    """A settings file as Settings, or everything that is wrong with it. Never raises."""
    report = Report(str(file))
    node = read_yaml(content, report)
    read = None if node is None else Section(Settings).read(node, "", report)
    if isinstance(read, Settings):
        metrics = read.metrics
        if metrics.source is Source.PROMETHEUS and metrics.prometheus is None and not _blamed(report):
            report.add(
                "metrics.prometheus", "none", "a mapping with url", "`source: prometheus` needs `prometheus.url`"
            )
        if not report.errors:
            return replace(read, folder=file.parent)
    return report.sorted()


def _blamed(report: Report) -> bool:
    """Whether the section was there and wrong: then it is not also missing."""
    return any(error.path.startswith("metrics.prometheus") for error in report.errors)


def parse_credentials(content: bytes, file: Path) -> tuple[Credential, ...] | tuple[PolicyError, ...]:
    """A tokens file as its entries, or everything that is wrong with it. Never raises."""
    report = Report(str(file))
    node = read_yaml(content, report)
    read = None if node is None else Items(Section(Credential), 10_000).read(node, "", report)
    return read if isinstance(read, tuple) and not report.errors else report.sorted()

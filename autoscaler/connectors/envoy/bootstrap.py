"""Envoy's bootstrap: one listener that lets inference through, knows the adapter, counts per adapter and owner.

Everything that changes while a fleet runs lies in files of its own (`resources`), which Envoy reads again when one is
renamed into place. Written against Envoy 1.40; the filters `json_to_metadata` and `sse_to_metadata` and the `stats`
access logger are marked work in progress upstream. Metric names and tags are documented in docs/envoy.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources as package_files
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

TYPE = "type.googleapis.com/envoy."
ADAPTER_HEADER, PREFERENCE_HEADER = "x-lora-adapter", "x-lora-preference"
ROUTES, CLUSTERS, LIMITS = "routes.json", "clusters.json", "fairness.json"
FAIRNESS, RETRY_AFTER = "fairness", "retry_after"
"""The filter that bounds tenants, and its word in the metadata of the same name."""
BY_ADS: Json = {"ads": {}, "resource_api_version": "V3"}
"""A config source: the aggregated discovery of the bootstrap."""
BUFFER_BYTES = 8 * 1024 * 1024

TTFT_BUCKETS_MS = (5, 10, 20, 40, 60, 80, 100, 150, 250, 500, 750, 1000, 2500, 5000, 10000, 20000, 40000, 80000, 160000)
INFERENCE_PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/embeddings")
MODELS_PATH = "/v1/models"


@dataclass(frozen=True, slots=True)
class EnvoySettings:
    """How one Envoy is wired.

    Attributes:
        directory: holds the bootstrap and the watched files; a relative path is made absolute.
        port, admin_port: where clients and where we ask it; both on `host`.
        host: the address it listens on; loopback unless said otherwise: the admin port stops the process on request.
        node: its name, as `Router.id` shows it.
        concurrency: worker threads. In-flight counts are shared by them.
        buffer_bytes: longest request body, since the body is held until the adapter is known.
    """

    directory: Path
    port: int
    admin_port: int
    host: str = "127.0.0.1"
    node: str = "envoy"
    concurrency: int = 1
    buffer_bytes: int = BUFFER_BYTES

    @property
    def url(self) -> str:
        """Where clients send."""
        return f"http://{self.host}:{self.port}"

    @property
    def admin_url(self) -> str:
        """Where statistics and versions are read."""
        return f"http://{self.host}:{self.admin_port}"


def bootstrap(settings: EnvoySettings) -> Json:
    """The bootstrap as JSON types; write it to a file and give it to `envoy -c`."""
    folder = settings.directory.absolute()
    sources = _Sources(watched_file(folder / ROUTES), watched_file(folder / LIMITS))
    return _bootstrap(settings, {"cds_config": watched_file(folder / CLUSTERS)}, sources, [])


def discovering(settings: EnvoySettings, controller: tuple[str, int], pages_port: int | None = None) -> Json:
    """The bootstrap of an Envoy that asks a controller for everything, by incremental ADS at that host and port.

    While no controller answers it keeps what it has; what it never had it waits for. With `pages_port` the admin port
    is on loopback, and only its metrics and readiness can be read from outside, at that port.
    """
    service = {"envoy_grpc": {"cluster_name": "controller"}}
    ads = {"api_type": "DELTA_GRPC", "transport_api_version": "V3", "grpc_services": [service]}
    endpoint = {"lb_endpoints": [{"endpoint": {"address": socket_address(*controller)}}]}
    http2 = {
        "@type": TYPE + "extensions.upstreams.http.v3.HttpProtocolOptions",
        # So that a controller whose machine died is noticed, and the stream begins again at another instance.
        "explicit_http_config": {
            "http2_protocol_options": {"connection_keepalive": {"interval": "10s", "timeout": "5s"}}
        },
    }
    cluster = {
        "name": "controller", "type": "STRICT_DNS", "connect_timeout": "1s",
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
        "load_assignment": {"cluster_name": "controller", "endpoints": [endpoint]},
    }  # fmt: skip
    made = _bootstrap(settings, {"ads_config": ads, "cds_config": BY_ADS}, _Sources(BY_ADS, BY_ADS), [cluster])
    if pages_port is not None:
        made["admin"] = {"address": socket_address("127.0.0.1", settings.admin_port)}
        made["static_resources"]["listeners"].append(_pages(settings.host, pages_port))
        made["static_resources"]["clusters"].append(_admin(settings.admin_port))
    return made


def _pages(host: str, port: int) -> Json:
    routes = [
        {"match": {"path": path, "headers": [{"name": ":method", "string_match": {"exact": "GET"}}]},
         "route": {"cluster": "admin"}}
        for path in ("/stats/prometheus", "/ready")
    ]  # fmt: skip
    router = {"@type": TYPE + "extensions.filters.http.router.v3.Router"}
    manager = {
        "@type": TYPE + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "pages",
        "route_config": {"virtual_hosts": [{"name": "pages", "domains": ["*"], "routes": routes}]},
        "http_filters": [extension("envoy.filters.http.router", router)],
    }
    chain = {"filters": [extension("envoy.filters.network.http_connection_manager", manager)]}
    return {"name": "pages", "address": socket_address(host, port), "filter_chains": [chain]}


def _admin(port: int) -> Json:
    endpoint = {"lb_endpoints": [{"endpoint": {"address": socket_address("127.0.0.1", port)}}]}
    assignment = {"cluster_name": "admin", "endpoints": [endpoint]}
    return {"name": "admin", "type": "STATIC", "connect_timeout": "1s", "load_assignment": assignment}


@dataclass(frozen=True, slots=True)
class _Sources:
    """Where the listener's changing parts come from."""

    routes: Json
    limits: Json


def _bootstrap(settings: EnvoySettings, discovery: Json, sources: _Sources, clusters: list[Json]) -> Json:
    return {
        "node": {"id": settings.node, "cluster": "lora-autoscaler"},
        "admin": {"address": socket_address(settings.host, settings.admin_port)},
        "stats_flush_interval": "1s",
        "stats_config": {"histogram_bucket_settings": [_ttft_buckets()]},
        "dynamic_resources": discovery,
        "static_resources": {"listeners": [_listener(settings, sources)], "clusters": clusters},
    }


def socket_address(host: str, port: int) -> Json:
    """An address in Envoy's words."""
    return {"socket_address": {"address": host, "port_value": port}}


def watched_file(path: Path) -> Json:
    """A config source: read at start, and again whenever a file is renamed to this path."""
    return {"path_config_source": {"path": str(path)}, "resource_api_version": "V3"}


def _ttft_buckets() -> Json:
    return {"match": {"prefix": "llm.ttft_ms"}, "buckets": [float(edge) for edge in TTFT_BUCKETS_MS]}


def _listener(settings: EnvoySettings, sources: _Sources) -> Json:
    manager = {
        "@type": TYPE + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "inference",
        "generate_request_id": False,
        "normalize_path": True,
        "merge_slashes": True,
        "stream_idle_timeout": "3600s",
        "rds": {"route_config_name": "fleet", "config_source": sources.routes},
        "access_log": _access_logs(),
        "http_filters": _filters(sources.limits),
        "local_reply_config": {"mappers": [_too_many()]},
    }
    return {
        "name": "inference",
        "address": socket_address(settings.host, settings.port),
        # With it a second Envoy on the same port would share the traffic instead of failing to start.
        "enable_reuse_port": False,
        "per_connection_buffer_limit_bytes": settings.buffer_bytes,
        "filter_chains": [{"filters": [extension("envoy.filters.network.http_connection_manager", manager)]}],
    }


def _filters(limits: Json) -> list[Json]:
    usage = [_rule(("usage", name), "llm", name, "NUMBER") for name in ("prompt_tokens", "completion_tokens")]
    json_types = {"google_re2": {}, "regex": "application/json.*"}
    to_metadata = {
        "@type": TYPE + "extensions.filters.http.json_to_metadata.v3.JsonToMetadata",
        "request_rules": {
            "rules": [_rule(("model",), "envoy.lb", "adapter", "STRING")],
            "allow_content_types_regex": json_types,
            "allow_empty_content_type": True,
        },
        "response_rules": {"rules": usage, "allow_content_types_regex": json_types},
    }
    parser = {
        "@type": TYPE + "extensions.content_parsers.json.v3.JsonContentParser",
        "rules": [{"rule": rule} for rule in usage],
    }
    events = {
        "@type": TYPE + "extensions.filters.http.sse_to_metadata.v3.SseToMetadata",
        "response_rules": {
            "content_parser": extension("envoy.content_parsers.json", parser),
            "max_event_size": 1024 * 1024,
        },
    }
    script = (package_files.files(__package__) / "filters.lua").read_text()
    lua = {"@type": TYPE + "extensions.filters.http.lua.v3.Lua", "default_source_code": {"inline_string": script}}
    router = {"@type": TYPE + "extensions.filters.http.router.v3.Router", "suppress_envoy_headers": True}
    return [
        extension("envoy.filters.http.rbac", _allow_inference()),
        extension("envoy.filters.http.json_to_metadata", to_metadata),
        extension("envoy.filters.http.lua", lua),
        # Nobody is bounded until the first configuration is there, and nobody waits for it.
        {"name": FAIRNESS, "config_discovery": {
            "config_source": limits, "default_config": matched_composite({}),
            "apply_default_config_without_warming": True, "type_urls": [_MATCHED]}},
        extension("envoy.filters.http.sse_to_metadata", events),
        extension("envoy.filters.http.router", router),
    ]  # fmt: skip


_MATCHED = TYPE + "extensions.common.matching.v3.ExtensionWithMatcher"


def matched_composite(matcher: Json) -> Json:
    """A filter that runs what `matcher` finds for a request, if anything."""
    empty = {"@type": TYPE + "extensions.filters.http.composite.v3.Composite"}
    inner = extension("envoy.filters.http.composite", empty)
    return {"@type": _MATCHED, "extension_config": inner, "xds_matcher": matcher}


def _too_many() -> Json:
    """What a tenant beyond its bound is told: in OpenAI's form, and when to come again."""
    refused = {"and_filter": {"filters": [_status(429, "EQ"), _has_metadata(RETRY_AFTER, FAIRNESS)]}}
    header = {"key": "retry-after", "value": f"%DYNAMIC_METADATA({FAIRNESS}:{RETRY_AFTER})%"}
    text = "Too many requests of this tenant are in flight while the fleet is full; ask again later."
    error = {"message": text, "type": "TooManyRequestsError", "param": None, "code": 429}
    return {
        "filter": refused,
        "headers_to_add": [{"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}],
        "body_format_override": {"json_format": {"error": error}},
    }


def _allow_inference() -> Json:
    """Only these calls reach an engine: clients must not load or unload adapters. Everything else answers 403."""

    def call(method: str, path: str) -> Json:
        is_method = {"header": {"name": ":method", "string_match": {"exact": method}}}
        return {"and_rules": {"rules": [is_method, {"url_path": {"path": {"exact": path}}}]}}

    calls = [call("POST", path) for path in INFERENCE_PATHS] + [call("GET", MODELS_PATH)]
    policy = {"permissions": calls, "principals": [{"any": True}]}
    return {
        "@type": TYPE + "extensions.filters.http.rbac.v3.RBAC",
        "rules": {"action": "ALLOW", "policies": {"inference": policy}},
    }


def _rule(selectors: tuple[str, ...], namespace: str, key: str, value_type: str) -> Json:
    on_present = {"metadata_namespace": namespace, "key": key, "type": value_type}
    return {"selectors": [{"key": selector} for selector in selectors], "on_present": on_present}


def _access_logs() -> list[Json]:
    """One stats logger per condition: a value that is not there would be logged as an error by each request."""
    adapter = {"name": "adapter", "value_format": "%ROUTE_NAME%"}
    pair = [adapter, {"name": "upstream", "value_format": "%UPSTREAM_HOST%"}]
    post = {"header_filter": {"header": {"name": ":method", "string_match": {"exact": "POST"}}}}
    failed = {"or_filter": {"filters": [_status(400, "GE"), {"response_flag_filter": {}}]}}

    def counter(name: str, tags: list[Json], value: str = "") -> Json:
        amount: Json = {"value_format": value} if value else {"value_fixed": 1}
        return {"stat": {"name": name, "tags": tags}, **amount}

    ttft = "%DYNAMIC_METADATA(llm:ttft_ms)%"
    histogram = {"stat": {"name": "ttft_ms", "tags": [adapter]}, "unit": "Milliseconds", "value_format": ttft}
    return [
        _stats_logger(post, counters=[counter("requests", pair)]),
        _stats_logger(
            {"and_filter": {"filters": [post, failed]}},
            counters=[counter("errors", [*pair, {"name": "code", "value_format": "%RESPONSE_CODE%"}])],
        ),
        *(
            _stats_logger(_has_metadata(name), counters=[counter(name, pair, f"%DYNAMIC_METADATA(llm:{name})%")])
            for name in ("prompt_tokens", "completion_tokens")
        ),
        _stats_logger(
            _has_metadata("ttft_ms"),
            counters=[counter("streams", pair), counter("stream_ttft_ms", pair, ttft)],
            histograms=[histogram],
        ),
    ]


def _status(code: int, op: str) -> Json:
    comparison = {"op": op, "value": {"default_value": code, "runtime_key": f"lora_autoscaler.status_{code}"}}
    return {"status_code_filter": {"comparison": comparison}}


def _has_metadata(key: str, namespace: str = "llm") -> Json:
    present = {"filter": namespace, "path": [{"key": key}], "value": {"present_match": True}}
    return {"metadata_filter": {"matcher": present, "match_if_key_not_found": False}}


def _stats_logger(condition: Json, *, counters: list[Json], histograms: list[Json] | None = None) -> Json:
    config = {
        "@type": TYPE + "extensions.access_loggers.stats.v3.Config",
        "stat_prefix": "llm",
        "counters": counters,
        "histograms": histograms or [],
    }
    return {"name": "envoy.access_loggers.stats", "filter": condition, "typed_config": config}


def extension(name: str, config: Json) -> Json:
    """A filter, logger or action by its name."""
    return {"name": name, "typed_config": config}

"""The examples in the docs name what the chart makes, and core kinds are valid."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.e2e.test_chart import of_kind, rendered

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
CORE = ("v1", "apps/v1", "autoscaling/v2", "rbac.authorization.k8s.io/v1")


def documents(name: str) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all((EXAMPLES / name).read_text()) if found]


@pytest.mark.parametrize("name", [path.name for path in sorted(EXAMPLES.glob("*.yaml"))])
def test_each_is_a_manifest_and_core_kinds_are_valid(name: str) -> None:
    for found in documents(name):
        assert {"apiVersion", "kind", "metadata"} <= found.keys()
        assert found["metadata"]["namespace"]
        if found["apiVersion"] in CORE:
            kubernetes_validate.validate(found, "1.37", strict=True)


@pytest.fixture
def router(tmp_path: Path) -> dict[str, Any]:
    """The router's Service of the release `lora` in `serving`, as the examples have it."""
    values = {"policies": {"chat": {"baseModel": "llama"}}, "router": {"enabled": True}}
    services = {s["metadata"]["name"]: s for s in of_kind(rendered(tmp_path, values), "Service")}
    return services["release-chat-router"]


def test_gateways_send_to_the_service_and_port_of_the_routers(router: dict[str, Any]) -> None:
    (port,) = (p["port"] for p in router["spec"]["ports"])
    route = documents("gateway-api.yaml")[0]["spec"]["rules"][0]
    old, ours = route["backendRefs"]
    assert (ours["name"], ours["port"]) == ("lora-chat-router", port)
    assert old["weight"] + ours["weight"] == 100
    assert route["matches"] == [{"path": {"type": "PathPrefix", "value": "/v1"}}], "one rule, for every adapter"
    (http,) = documents("istio.yaml")[0]["spec"]["http"]
    old, ours = http["route"]
    assert ours["destination"] == {"host": "lora-chat-router.serving.svc.cluster.local", "port": {"number": port}}
    assert old["weight"] + ours["weight"] == 100
    assert len(http["match"]) == 1


def test_scalers_take_the_exported_count_as_it_is() -> None:
    (trigger,) = documents("keda.yaml")[0]["spec"]["triggers"]
    assert trigger["metricType"] == "AverageValue"
    assert trigger["metadata"]["threshold"] == "1"
    assert "lora_autoscaler_desired_replicas{" in trigger["metadata"]["query"]
    assert trigger["metadata"]["ignoreNullValues"] == "false", "no value is no zero"
    (metric,) = documents("hpa.yaml")[0]["spec"]["metrics"]
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}

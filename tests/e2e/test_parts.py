"""Both Prometheus releases and Envoy start and behave; the control plane's parts are tried in `kubernetes/`."""

import json
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.parts.envoy import EnvoyProcess
from tests.e2e.parts.processes import LOOPBACK, PartFailedError, Server, free_port, wait_until
from tests.e2e.parts.prometheus import PrometheusServer, Targets

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
TYPES = "type.googleapis.com/envoy.extensions.filters"


class OneMetric(BaseHTTPRequestHandler):
    """Answers every GET with the same metric."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(b"engine_up 1\n")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def target() -> Iterator[str]:
    """The address of something to scrape."""
    with ThreadingHTTPServer((LOOPBACK, free_port()), OneMetric) as server:
        threading.Thread(target=partial(server.serve_forever, poll_interval=0.05), daemon=True).start()
        yield f"{LOOPBACK}:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("version", ["2", "3"])
def test_both_releases_of_prometheus_scrape_what_a_file_names(version: Any, target: str, tmp_path: Path) -> None:
    targets = Targets(tmp_path / "targets.json")
    targets.write({target: {"replica": "r0"}})
    with PrometheusServer(tmp_path, [targets.scrape_config()], version=version) as prometheus:
        (sample,) = wait_until("a sample is there", lambda: prometheus.query("engine_up"))
        with urllib.request.urlopen(f"{prometheus.url}/api/v1/status/buildinfo") as answer:
            build = json.load(answer)["data"]
    assert sample["metric"]["replica"] == "r0"
    assert sample["value"][1] == "1"
    assert build["version"].startswith(f"{version}.")


def test_two_envoys_run_side_by_side_with_static_configurations(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    with (
        EnvoyProcess(tmp_path / "a", answering(ports[0], "from a")) as one,
        EnvoyProcess(tmp_path / "b", answering(ports[1], "from b")),
    ):
        bodies = [urllib.request.urlopen(f"http://{LOOPBACK}:{port}/", timeout=5).read() for port in ports]
        assert bodies == [b"from a", b"from b"]
        assert "http.tests.downstream_rq_2xx: 1" in one.admin("/stats")


def test_a_program_that_ends_before_it_is_ready_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(PartFailedError, match=r"(?s)shell ended with 3 before it was ready.*boom"):
        Server("shell", ["sh", "-c", "echo boom; exit 3"], tmp_path, lambda: False).start()


@pytest.mark.skipif(not shutil.which("setpriv"), reason="without setpriv a program may outlive a killed test run")
def test_no_program_outlives_a_test_run_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import os, pathlib; from tests.e2e.parts.processes import Server\n"
        f"server = Server('sleeper', ['sleep', '600'], pathlib.Path({str(tmp_path)!r}), lambda: True).launch()\n"
        "print(server.process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    process = Path("/proc") / done.stdout.strip() / "stat"
    wait_until("the sleeper is gone", lambda: not process.exists() or ") Z " in process.read_text())


def answering(port: int, body: str) -> Json:
    """A bootstrap in which one listener answers every request with `body`."""
    route = {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": body}}}
    router = {"@type": f"{TYPES}.http.router.v3.Router"}
    manager = {
        "@type": f"{TYPES}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "tests",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    address = {"socket_address": {"address": LOOPBACK, "port_value": port}}
    return {"static_resources": {"listeners": [{"name": "in", "address": address, "filter_chains": [chain]}]}}

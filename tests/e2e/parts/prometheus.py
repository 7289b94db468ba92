"""Prometheus, the release of Debian (2.x) and the present one (3.x): users run both."""

import json
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tests.e2e.parts.processes import LOOPBACK, Server, answers_200, free_port, need

Json = dict[str, Any]


class Targets:
    """A `file_sd` file of scrape targets, which may be written anew while Prometheus runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write({})

    def write(self, targets: Mapping[str, Mapping[str, str]]) -> None:
        """Address with port -> its labels. Renamed into place, so that Prometheus never reads half a file."""
        groups = [{"targets": [address], "labels": dict(labels)} for address, labels in targets.items()]
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(groups))
        fresh.rename(self.path)

    def scrape_config(self, job: str = "engines") -> Json:
        """The scrape configuration that reads the file."""
        files = {"files": [str(self.path)], "refresh_interval": "1s"}
        return {"job_name": job, "file_sd_configs": [files]}


def pods_scrape_config(kubeconfig: Path, namespace: str, port_name: str, job: str = "engines") -> Json:
    """The scrape configuration for the pods of a namespace by `kubernetes_sd`, which needs version 3 here.

    The series carry `namespace`, `pod` and each pod label, as with a PodMonitor that keeps them.
    """
    discovery = {"role": "pod", "kubeconfig_file": str(kubeconfig), "namespaces": {"names": [namespace]}}
    relabel = [
        {"source_labels": ["__meta_kubernetes_pod_container_port_name"], "regex": port_name, "action": "keep"},
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
        {"regex": "__meta_kubernetes_pod_label_(.+)", "action": "labelmap"},
    ]
    return {"job_name": job, "kubernetes_sd_configs": [discovery], "relabel_configs": relabel}


class PrometheusServer(Server):
    """Prometheus on loopback that scrapes every `interval` by the given configurations; `rule_files` are loaded too."""

    def __init__(
        self,
        directory: Path,
        scrape_configs: Sequence[Json],
        *,
        version: Literal["2", "3"] = "2",
        interval: str = "1s",
        rule_files: Sequence[Path] = (),
        retention: str = "15d",
    ) -> None:
        program = need("prometheus3" if version == "3" else "prometheus")
        address = f"{LOOPBACK}:{free_port()}"
        self.url = f"http://{address}"
        directory.mkdir(parents=True, exist_ok=True)
        configuration = {
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "scrape_configs": list(scrape_configs),
            "rule_files": [str(path) for path in rule_files],
        }
        (directory / "prometheus.yml").write_text(json.dumps(configuration))  # JSON is YAML too
        argv = [
            *(program, "--config.file=prometheus.yml", "--storage.tsdb.path=data"),
            *(f"--web.listen-address={address}", "--log.level=warn", f"--storage.tsdb.retention.time={retention}"),
        ]
        super().__init__(f"prometheus-{version}", argv, directory, lambda: answers_200(f"{self.url}/-/ready"))

    def query(self, expression: str) -> list[Json]:
        """The instant vector that an expression gives now: each with its `metric` labels and `value`."""
        url = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found: list[Json] = json.load(answer)["data"]["result"]
        return found

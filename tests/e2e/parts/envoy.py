"""Stock Envoy, from the wheel that the extra `simulate` installs."""

import json
import urllib.request
from pathlib import Path
from typing import Any

from tests.e2e.parts.processes import LOOPBACK, Server, answers_200, free_port, need


class EnvoyProcess(Server):
    """Envoy with a bootstrap of the test's own; the administration address is added to it."""

    def __init__(
        self, directory: Path, bootstrap: dict[str, Any], *, name: str = "envoy", concurrency: int = 1
    ) -> None:
        port = free_port()
        self.admin_url = f"http://{LOOPBACK}:{port}"
        directory.mkdir(parents=True, exist_ok=True)
        admin = {"address": {"socket_address": {"address": LOOPBACK, "port_value": port}}}
        (directory / f"{name}.json").write_text(json.dumps(bootstrap | {"admin": admin}))
        # Without a base id of its own, a second Envoy on the machine would find the first one's shared memory taken.
        argv = [
            *(need("envoy"), "--config-path", f"{name}.json", "--use-dynamic-base-id"),
            *("--concurrency", str(concurrency), "--log-level", "warning"),
        ]
        super().__init__(name, argv, directory, lambda: answers_200(f"{self.admin_url}/ready"))

    def admin(self, path: str) -> str:
        """What the administration interface answers, such as `/clusters?format=json` or `/stats/prometheus`."""
        with urllib.request.urlopen(self.admin_url + path, timeout=10) as answer:
            return str(answer.read(), "utf-8")

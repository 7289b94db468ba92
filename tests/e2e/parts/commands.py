"""The real `helm` and `kubectl`, run against a kubeconfig and away from whatever the user has configured."""

import os
import subprocess
import tempfile
from pathlib import Path

from tests.e2e.parts.processes import need


class CommandFailedError(Exception):
    """A command ended with an error; the message has its words."""


def helm(*arguments: str, kubeconfig: Path | None = None) -> str:
    """Standard output of `helm`. Without a kubeconfig only what needs no cluster works: lint, template, version."""
    return _run("helm", arguments, kubeconfig)


def kubectl(*arguments: str, kubeconfig: Path, stdin: str = "") -> str:
    """Standard output of `kubectl`."""
    return _run("kubectl", arguments, kubeconfig, stdin)


def _run(name: str, arguments: tuple[str, ...], kubeconfig: Path | None, stdin: str = "") -> str:
    program = need(name)
    with tempfile.TemporaryDirectory() as home:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("HELM_", "XDG_", "KUBE"))}
        environment = clean | {"HOME": home, "KUBECONFIG": str(kubeconfig or os.devnull)}
        done = subprocess.run(
            [program, *arguments], input=stdin, env=environment, capture_output=True, text=True, timeout=300
        )
    if done.returncode:
        said = (done.stderr + done.stdout).strip()
        raise CommandFailedError(f"`{name} {' '.join(arguments)}` ended with {done.returncode}: {said}")
    return done.stdout

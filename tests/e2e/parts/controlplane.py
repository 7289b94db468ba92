"""A real Kubernetes control plane on loopback: etcd, API server, controller manager. Only the nodes are ours."""

import contextlib
import json
import ssl
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from kubernetes import client, config

from tests.e2e.parts.certificates import CertificateAuthority
from tests.e2e.parts.processes import LOOPBACK, Server, answers_200, free_port, need


class Etcd(Server):
    """etcd with its data in `directory`, without waiting for the disk."""

    def __init__(self, directory: Path) -> None:
        self.url = f"http://{LOOPBACK}:{free_port()}"
        peers = f"http://{LOOPBACK}:{free_port()}"
        argv = [
            *(need("etcd"), "--unsafe-no-fsync", "--data-dir", "data", "--log-level", "warn"),
            *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
            *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
            *("--initial-cluster", f"default={peers}"),
        ]
        super().__init__("etcd", argv, directory, lambda: answers_200(f"{self.url}/health"))


class ControlPlane:
    """The three programs, an administrator's client, and kubeconfigs for whoever a test wants to be.

    `apiserver` and `controller_manager` may be stopped and started again: ports, keys and data stay.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = CertificateAuthority(directory / "certificates")
        self.url = f"https://{LOOPBACK}:{free_port()}"
        self.admin_token = uuid.uuid4().hex
        self.etcd = Etcd(directory / "etcd")
        self.kubeconfig = self._write_kubeconfig("admin", {"token": self.admin_token})
        signing_key = self.authority.signing_key()
        self.apiserver = self._apiserver(signing_key)
        self.controller_manager = self._controller_manager(signing_key)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for server in (self.etcd, self.apiserver, self.controller_manager):
                stack.callback(server.close)  # no grace: nothing of it is kept, and the API server would take 10 s
                server.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # Who asks

    def client(self, kubeconfig: Path | None = None) -> client.ApiClient:
        """A client of the official library: the administrator's, or that of a kubeconfig made below."""
        path = str(kubeconfig or self.kubeconfig)
        made: client.ApiClient = config.new_client_from_config(config_file=path)  # type: ignore[no-untyped-call]
        return made

    def kubeconfig_for_user(self, user: str, *groups: str) -> Path:
        """A kubeconfig by client certificate for a user (and groups) that RBAC may or may not know."""
        issued = self.authority.client(user, groups)
        files = {"client-certificate": str(issued.certificate), "client-key": str(issued.key)}
        return self._write_kubeconfig(f"user-{issued.key.stem}", files)

    def kubeconfig_for_service_account(self, namespace: str, name: str, lasts_s: int = 3600) -> Path:
        """A kubeconfig with a token that the API server issues for a service account that exists."""
        request = client.AuthenticationV1TokenRequest(
            spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=lasts_s)
        )
        with self.client() as api:
            answer = client.CoreV1Api(api).create_namespaced_service_account_token(name, namespace, request)
        assert answer.status is not None
        return self._write_kubeconfig(f"sa-{namespace}-{name}", {"token": str(answer.status.token)}, namespace)

    def _write_kubeconfig(self, name: str, user: dict[str, str], namespace: str = "default") -> Path:
        cluster = {"server": self.url, "certificate-authority": str(self.authority.certificate)}
        content: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": "tests", "user": name, "namespace": namespace}}],
            "current-context": name,
        }
        path = self.directory / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(content))
        return path

    # Whose things

    @contextmanager
    def namespace(self, prefix: str = "test") -> Iterator[str]:
        """A namespace of the test's own; on the way out it is deleted, and its end is not waited for."""
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        with self.client() as api:
            core = client.CoreV1Api(api)
            core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
            try:
                yield name
            finally:
                core.delete_namespace(name)

    # The programs

    def _apiserver(self, signing_key: Path) -> Server:
        directory = self.directory / "apiserver"
        directory.mkdir(parents=True)
        tokens = directory / "tokens.csv"
        tokens.write_text(f'{self.admin_token},admin,admin,"system:masters"\n')
        serving = self.authority.server()
        argv = [
            *(need("kube-apiserver"), "--etcd-servers", self.etcd.url, "--cert-dir", "certificates"),
            *("--bind-address", LOOPBACK, "--secure-port", self.url.rpartition(":")[2]),
            # A loopback address may not be advertised, so nobody reconciles the endpoints of the service "kubernetes".
            *("--endpoint-reconciler-type", "none", "--service-cluster-ip-range", "10.96.0.0/16"),
            *("--tls-cert-file", str(serving.certificate), "--tls-private-key-file", str(serving.key)),
            *("--client-ca-file", str(self.authority.certificate), "--token-auth-file", str(tokens)),
            *("--service-account-issuer", "https://kubernetes.default.svc"),
            *("--service-account-key-file", str(signing_key), "--service-account-signing-key-file", str(signing_key)),
            *("--authorization-mode", "RBAC", "--disable-admission-plugins", "ServiceAccount"),
        ]
        return Server("kube-apiserver", argv, directory, lambda: self._get("/readyz"))

    def _controller_manager(self, signing_key: Path) -> Server:
        argv = [
            *(need("kube-controller-manager"), "--kubeconfig", str(self.kubeconfig), "--leader-elect=false"),
            *("--bind-address", LOOPBACK, "--secure-port", "0", "--root-ca-file", str(self.authority.certificate)),
            *("--service-account-private-key-file", str(signing_key)),
            *("--controllers", "*,-nodeipam,-nodelifecycle", "--kube-api-qps", "200", "--kube-api-burst", "400"),
        ]
        # It works once it has made the service account that every namespace gets.
        ready = "/api/v1/namespaces/default/serviceaccounts/default"
        return Server("kube-controller-manager", argv, self.directory / "controller-manager", lambda: self._get(ready))

    def _get(self, path: str) -> bytes | None:
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.admin_token}"})
        trust = ssl.create_default_context(cafile=self.authority.certificate)
        with (
            contextlib.suppress(urllib.error.URLError, OSError),
            urllib.request.urlopen(request, timeout=2, context=trust) as answer,
        ):
            return bytes(answer.read())
        return None

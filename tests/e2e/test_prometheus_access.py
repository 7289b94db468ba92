"""Prometheus behind TLS that asks for a client's certificate, as mesh and gateway setups have it."""

import ssl
from pathlib import Path

from aiohttp import web

from autoscaler.connectors.metrics.connection import PrometheusConnection, PrometheusSettings
from autoscaler.domain.signals import Missing
from tests.e2e.parts.certificates import CertificateAuthority


async def test_only_the_right_authority_and_certificate_get_an_answer(tmp_path: Path) -> None:
    ours, other = CertificateAuthority(tmp_path / "ours"), CertificateAuthority(tmp_path / "other")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ours.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    server, client = ours.server(), ours.client("autoscaler")
    context.load_cert_chain(server.certificate, server.key)

    async def query(_: web.Request) -> web.Response:
        return web.json_response({"status": "success", "data": {"resultType": "scalar", "result": [7, "7"]}})

    app = web.Application()
    app.router.add_get("/api/v1/query", query)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}"

    async def now_s(**settings: Path) -> float | Missing:
        connection = PrometheusConnection(PrometheusSettings(url, retries=0, **settings))  # type: ignore[arg-type]
        try:
            return await connection.now_s()
        finally:
            connection.close()

    certificate = {"cert_file": client.certificate, "key_file": client.key}
    assert await now_s(ca_file=ours.certificate, **certificate) == 7.0
    for refused in (
        await now_s(ca_file=ours.certificate),
        await now_s(ca_file=other.certificate, **certificate),
        await now_s(**certificate),
        await now_s(ca_file=tmp_path / "gone.pem", **certificate),
    ):
        assert isinstance(refused, Missing)
        assert "does not answer" in refused.why
    await runner.cleanup()

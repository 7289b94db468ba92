"""What an intruder, a runaway script or a leaky log would find at the API."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import httpx
import pytest

from autoscaler.api.auth import TokenTable
from autoscaler.api.limits import Budget, RateLimits
from autoscaler.cli.errors import UsageError
from autoscaler.cli.service import Listen, Service, SystemClock, make_token
from tests.api.conftest import TOKENS, Api, _api, client
from tests.api.test_access import COMMANDS, OVERRIDE, is_problem
from tests.e2e.parts.certificates import CertificateAuthority
from tests.e2e.parts.processes import free_port

PATH = "/v1/fleets/fleet/tenants/t000/override"


@pytest.fixture
def api(tmp_path: Path):
    yield from _api(tmp_path, 12)


async def test_a_script_that_commands_without_end_is_slowed_and_told_when_to_come_again(api: Api):
    async with client(api, "ann") as ann, client(api, "rob") as rob:
        statuses = [(await ann.put(PATH, json=OVERRIDE)).status_code for _ in range(int(Budget.COMMAND.value.burst))]
        refused = await ann.put(PATH, json=OVERRIDE)
        assert set(statuses) == {200}
        assert is_problem(refused, 429, "ann asks more often than 2 times a second")
        assert refused.headers["retry-after"] == "1"
        assert (await ann.get("/v1/fleets/fleet")).status_code == 200, "reading is another budget"
        assert (await rob.get("/v1/fleets/fleet")).status_code == 200
        api.now_s += 0.5
        assert (await ann.put(PATH, json=OVERRIDE)).status_code == 200


async def test_a_dashboard_that_runs_wild_does_not_take_the_ring_from_routers(api: Api):
    await api.publish()
    async with client(api, "rob") as rob:
        for _ in range(int(Budget.READ.value.burst)):
            await rob.get("/v1/fleets/fleet/overrides")
        assert is_problem(await rob.get("/v1/fleets/fleet/overrides"), 429, "rob asks more often")
        assert (await rob.get("/v1/fleets/fleet/ring")).status_code == 200


async def test_who_guesses_tokens_is_shut_out_before_the_right_one_is_looked_at(api: Api):
    async with client(api, None) as guesser:
        for number in range(int(Budget.REFUSED.value.burst)):
            answer = await guesser.get("/v1/fleets", headers={"Authorization": f"Bearer guess-{number}"})
            assert answer.status_code == 401
        right = {"Authorization": "Bearer ann"}
        assert is_problem(await guesser.get("/v1/fleets", headers=right), 429, "too many unknown tokens")
        api.now_s += 1.0
        assert (await guesser.get("/v1/fleets", headers=right)).status_code == 200


def test_buckets_refill_evenly_forget_the_longest_quiet_and_stand_when_the_clock_goes_back():
    now = [0.0]
    limits = RateLimits(lambda: now[0])
    for _ in range(60):
        assert limits.take(Budget.COMMAND, "ann") == 0.0
    assert limits.take(Budget.COMMAND, "ann") == pytest.approx(0.5)
    now[0] = -3600.0
    assert limits.take(Budget.COMMAND, "ann") == pytest.approx(0.5)
    now[0] = -3599.0
    assert [limits.take(Budget.COMMAND, "ann") for _ in range(3)] == [0.0, 0.0, pytest.approx(0.5)]
    for number in range(limits.MOST_CALLERS + 5):
        limits.take(Budget.READ, f"caller-{number}")
    assert len(limits._left) == limits.MOST_CALLERS


@pytest.mark.parametrize(("method", "path", "body"), COMMANDS)
async def test_a_page_of_another_site_cannot_command_with_a_users_cookies(api: Api, method, path, body):
    """There are no cookies and no CORS: a browser sends no credential by itself, and may read no answer."""
    hostile = {"Origin": "https://evil.example", "Cookie": "token=ann; Authorization=Bearer ann"}
    async with client(api, None, **hostile) as page:
        answer = await page.request(method, path, json=body)
        preflight = await page.options(path, headers={"Access-Control-Request-Method": method})
    assert answer.status_code == 401
    assert preflight.status_code == 405
    for seen in (answer, preflight):
        assert not [name for name in seen.headers if name.startswith("access-control-")]
        assert "set-cookie" not in seen.headers
    assert api.stores.audit.read() == ()


@pytest.mark.parametrize(("method", "path", "body"), [*COMMANDS, ("GET", "/v1/fleets/fleet/groups", None)])
async def test_a_stranger_cannot_learn_which_fleets_there_are(api: Api, method, path, body):
    async with client(api, None) as stranger:
        there = await stranger.request(method, path, json=body)
        elsewhere = await stranger.request(method, path.replace("/fleets/fleet", "/fleets/fleed"), json=body)
    assert (there.status_code, there.text) == (elsewhere.status_code, elsewhere.text)
    assert there.status_code == 401


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_form_is_no_command(api: Api, kind: str):
    async with client(api, "ann") as ann:
        answer = await ann.put(
            PATH, content=b'{"tier":"cold","reason":"load test","ttl_s":60}', headers={"Content-Type": kind}
        )
    assert answer.status_code == 422
    assert api.stores.audit.read() == ()


async def test_the_token_in_an_address_is_no_credential(api: Api):
    async with client(api, None) as anybody:
        for name in ("token", "access_token", "authorization"):
            assert (await anybody.get(f"/v1/fleets?{name}=ann")).status_code == 401


async def test_no_call_rewrites_or_removes_what_the_audit_says(api: Api):
    """Of all routes only GET has anything to do with the audit, whatever the role."""
    methods = {
        (path, method)
        for path, item in api.app.openapi()["paths"].items()
        for method in item
        if "audit" in path or "decisions" in path
    }
    assert {method for _, method in methods} == {"get"}
    async with client(api, "ann") as ann:
        await ann.put(PATH, json=OVERRIDE)
        await ann.delete(PATH)
        for method in ("PUT", "POST", "PATCH", "DELETE"):
            assert (await ann.request(method, "/v1/audit")).status_code == 405
        entries = (await ann.get("/v1/audit")).json()["items"]
    assert [(e["actor"], e["action"]) for e in entries][::-1] == [
        ("ann", entries[1]["action"]),
        ("ann", entries[0]["action"]),
    ]
    assert len(entries) == 2


async def test_secrets_are_in_no_log_error_audit_or_metric(api: Api, caplog: pytest.LogCaptureFixture):
    secret, _ = make_token()
    caplog.set_level(logging.DEBUG)
    async with client(api, None, Authorization=f"Bearer {secret}") as stranger:
        answers = [await stranger.request(method, path, json=body) for method, path, body in COMMANDS]
    async with client(api, "ann") as ann:
        api.stores.close()
        answers.append(await ann.get("/v1/audit"))
        answers.append(await ann.get("/metrics"))
    told = caplog.text + "".join(answer.text + str(answer.headers) for answer in answers)
    assert secret not in told
    assert "Bearer ann" not in told


def test_a_token_table_does_not_show_tokens_or_digests():
    token, digest = make_token()
    table = TokenTable([(digest, TOKENS["ann"])])
    assert token not in repr(vars(table)) + repr(table)
    assert len(token) >= 32


async def test_with_a_certificate_the_api_speaks_tls_only(tmp_path: Path):
    authority = CertificateAuthority(tmp_path)
    issued = authority.server()
    listen = Listen("127.0.0.1", free_port(), issued.certificate, issued.key)
    assert listen.url.startswith("https://")
    service = Service(tmp_path / "state", listen, TokenTable(()), SystemClock())
    serving = asyncio.create_task(service.serve())
    try:
        context = ssl.create_default_context(cafile=str(authority.certificate))
        async with httpx.AsyncClient(verify=context) as trusting:
            for _ in range(200):
                try:
                    answer = await trusting.get(f"{listen.url}/healthz")
                    break
                except httpx.ConnectError:
                    await asyncio.sleep(0.05)
            assert answer.text == "ok\n"
        async with httpx.AsyncClient() as plain:
            with pytest.raises(httpx.TransportError):
                await plain.get(listen.url.replace("https", "http") + "/healthz")
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await service.close()


async def test_a_certificate_that_is_none_stops_the_start_with_a_sentence(tmp_path: Path):
    (tmp_path / "none.pem").write_text("not a certificate")
    service = Service(tmp_path / "state", Listen("127.0.0.1", 1, tmp_path / "none.pem"), TokenTable(()), SystemClock())
    with pytest.raises(UsageError, match=r"none\.pem cannot be used"):
        service._server()
    await service.close()

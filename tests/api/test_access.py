"""Who may do what: tokens, roles, fleets. And what a request may bring."""

import dataclasses

import httpx
import pytest

from autoscaler.api.limits import MAX_BODY_BYTES
from tests.api.conftest import Api, client

OVERRIDE = {"tier": "cold", "reason": "load test", "ttl_s": 60}
COMMANDS = [
    ("PUT", "/v1/fleets/fleet/tenants/t000/override", OVERRIDE),
    ("DELETE", "/v1/fleets/fleet/tenants/t000/override", None),
    ("PUT", "/v1/fleets/fleet/groups/warm/pause", {"mode": "all", "reason": "load test"}),
    ("POST", "/v1/fleets/fleet/proposals/1/approve", None),
    ("POST", "/v1/fleets/fleet/proposals/1/reject", None),
    ("POST", "/v1/fleets/fleet/detach", {"reason": "uninstalling"}),
    ("DELETE", "/v1/fleets/fleet/detach", None),
]


def is_problem(answer: httpx.Response, status: int, words: str) -> bool:
    body = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, body["status"]) == (status, status), body
    assert body["title"]
    assert words in body["detail"], body["detail"]
    return True


@pytest.mark.parametrize("token", [None, "wrong", "Ann", "ann "])
async def test_without_a_known_token_everything_answers_401_and_says_what_is_expected(api: Api, token: str | None):
    async with client(api, token) as caller:
        answer = await caller.get("/v1/fleets")
    if token == "ann ":
        assert answer.status_code == 200, "spaces around a token are no part of it"
        return
    assert is_problem(answer, 401, "bearer token" if token is None else "not known")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(("method", "path", "body"), COMMANDS)
async def test_a_reader_changes_nothing(api: Api, method: str, path: str, body: dict | None):
    async with client(api, "rob") as reader:
        assert (await reader.get("/v1/fleets/fleet")).status_code == 200
        answer = await reader.request(method, path, json=body)
    assert is_problem(answer, 403, "rob is a reader; this needs an operator")
    assert api.stores.audit.read() == ()


@pytest.mark.parametrize(("method", "path", "body"), [*COMMANDS, ("GET", "/v1/fleets/fleet", None)])
async def test_a_credential_of_another_fleet_reaches_nothing_of_this_one(api: Api, method, path, body):
    async with client(api, "olga") as other:
        answer = await other.request(method, path, json=body)
        listed = (await other.get("/v1/fleets")).json()["items"]
        audit = (await other.get("/v1/audit")).json()["items"]
    assert is_problem(answer, 403, "olga has no access to the fleet 'fleet'")
    assert listed == []
    assert audit == []


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_probes_and_scrapes_need_no_token(api: Api, path: str):
    async with client(api, None) as anybody:
        assert (await anybody.get(path)).status_code == 200


async def test_readiness_says_what_is_missing(api: Api):
    api.not_ready = "not observed yet: fleet"
    async with client(api, None) as anybody:
        answer = await anybody.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "not observed yet: fleet\n")


async def test_bodies_over_the_limit_answer_413_whether_they_say_their_length_or_not(ann: httpx.AsyncClient):
    async def chunks():
        for _ in range(3):
            yield b"x" * (MAX_BODY_BYTES // 2)

    path = "/v1/fleets/fleet/tenants/t000/override"
    assert (await ann.put(path, content=b"x" * (MAX_BODY_BYTES + 1))).status_code == 413
    assert (await ann.put(path, content=chunks())).status_code == 413


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"tier": NaN}', b"\xff\xfe", b"[" * 5000])
async def test_a_body_that_is_no_command_is_refused_as_a_problem(ann: httpx.AsyncClient, body: bytes):
    answer = await ann.put(
        "/v1/fleets/fleet/tenants/t000/override", content=body, headers={"Content-Type": "application/json"}
    )
    assert is_problem(answer, 400 if body.startswith(b"[[") else 422, "body")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tier": "lukewarm"}, "body.tier"),
        ({"reason": "x"}, "at least 3"),
        ({"reason": "line\nbreak"}, "body.reason"),
        ({"ttl_s": 0}, "greater than 0"),
        ({"ttl_s": 1e9}, "less than or equal to 7776000"),
        ({"expires_at": "2026-12-01T12:00:00Z"}, "exactly one of ttl_s and expires_at"),
        ({"ttl_s": None}, "exactly one of ttl_s and expires_at"),
        ({"ttl_s": None, "expires_at": "2026-12-01T12:00:00"}, "needs a time zone"),
        ({"ttl_s": None, "expires_at": "2001-01-01T00:00:00Z"}, "within the next 90 days"),
        ({"actor": "somebody else"}, "body.actor"),
    ],
)
async def test_an_override_says_what_is_wrong_with_it(ann: httpx.AsyncClient, change: dict, words: str):
    answer = await ann.put("/v1/fleets/fleet/tenants/t000/override", json=OVERRIDE | change)
    assert is_problem(answer, 422, words)


HOSTILE = [
    "../../etc/passwd",
    "t000\x00",
    "a" * 5000,
    "'; DROP TABLE overrides; --",
    "<script>",
    "\u202e",
    "%2e%2e",
    "🦙",
]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
@pytest.mark.parametrize("kind", ["tenants", "adapters"])
async def test_hostile_names_are_names_that_the_fleet_does_not_have(ann: httpx.AsyncClient, name: str, kind: str):
    quoted = httpx.URL(f"http://api/v1/fleets/fleet/{kind}/").copy_with(
        raw_path=f"/v1/fleets/fleet/{kind}/".encode() + b"".join(b"%%%02X" % c for c in name.encode())
    )
    answer = await ann.get(quoted)
    assert answer.status_code in (404, 422)
    assert answer.headers["content-type"] == "application/problem+json"
    explained = await ann.get("/v1/fleets/fleet/explain", params={"subject": f"tenant/{name}"})
    assert explained.status_code in (404, 422)
    owners = await ann.get("/v1/fleets/fleet/ring/owners", params={"adapter": name})
    assert owners.status_code in (200, 422)


async def test_a_misspelt_name_is_answered_with_the_nearest(ann: httpx.AsyncClient):
    for path, near in (
        ("/v1/fleets/fleett", "'fleet'"),
        ("/v1/fleets/fleet/tenants/t0000", "'t000'"),
        ("/v1/fleets/fleet/adapters/t01", "'t0"),
        ("/v1/fleets/fleet/explain?subject=group/worm", "'warm'"),
        ("/v1/fleets/fleet/explain?subject=tenant/t-3", "'t003'"),
        ("/v1/fleets/fleet/explain?subject=adapter/T11", "'t011'"),
        ("/v1/fleets/fleet/residency?replica=warm-1", "'warm-001'"),
        ("/v1/fleets/fleet/residency?replica=warm-000&replica=warm-2", "'warm-002'"),
    ):
        assert is_problem(await ann.get(path), 404, f"did you mean {near}")


@pytest.mark.parametrize(
    "since", ["UNKNOWN", "other-0000002000000/0000", "fleet-0000002000000", "fleet-9999999999999/0000"]
)
async def test_a_decision_record_that_never_was_does_not_begin_anew(ann: httpx.AsyncClient, since: str):
    answer = await ann.get("/v1/fleets/fleet/decisions", params={"since": since})
    newest = (await ann.get("/v1/fleets/fleet/decisions")).json()["items"][-1]["id"]
    assert is_problem(answer, 404, f"no decision record {since!r}; the newest is {newest!r}")


async def test_a_decision_record_that_is_kept_no_more_is_before_all_that_are(ann: httpx.AsyncClient):
    kept = (await ann.get("/v1/fleets/fleet/decisions")).json()["items"]
    gone = {"since": "fleet-0000000000001/0000"}
    assert (await ann.get("/v1/fleets/fleet/decisions", params=gone)).json()["items"] == kept
    newest = {"since": kept[-1]["id"]}
    assert (await ann.get("/v1/fleets/fleet/decisions", params=newest)).json()["items"] == []


async def test_a_clock_that_stepped_back_loses_no_reader(ann: httpx.AsyncClient, api: Api):
    last = (await ann.get("/v1/fleets/fleet/decisions")).json()["items"][-1]["id"]
    (first,) = api.stores.decisions.read("fleet", limit=1)
    api.stores.decisions.append([dataclasses.replace(first, id="fleet-0000000000001/0000")])
    later = (await ann.get("/v1/fleets/fleet/decisions", params={"since": last})).json()["items"]
    assert [r["id"] for r in later] == ["fleet-0000000000001/0000"]


async def test_a_fleet_that_was_not_observed_yet_answers_503_and_when_to_ask_again(ann: httpx.AsyncClient):
    answer = await ann.get("/v1/fleets/other")
    assert is_problem(answer, 503, "not observed yet")
    assert answer.headers["retry-after"] == "5"


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/fleets/fleet/nothing", "/"])
async def test_unknown_paths_and_methods_are_problems_too(ann: httpx.AsyncClient, path: str):
    assert is_problem(await ann.get(path), 404, f"there is no {path} here; /docs lists")
    assert is_problem(await ann.post("/v1/fleets"), 405, "/v1/fleets does not take POST")


async def test_what_nobody_expected_says_nothing_of_the_inside(api: Api):
    api.views["fleet"] = None  # type: ignore[assignment]
    api.stores.close()
    async with client(api, "ann") as operator:
        answer = await operator.get("/v1/audit")
    assert answer.status_code in (500, 503)
    assert "Traceback" not in answer.text

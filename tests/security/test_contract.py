"""The API against its own description: calls that nobody thought of, made from OpenAPI, seeded and bounded."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.generation import GenerationMode

from tests.api.conftest import Api, _api, client

ENDLESS = "/v1/fleets/{fleet}/ring/events"
NAMES = {"fleet": "fleet", "tenant": "t000", "adapter": "t000", "group": "warm", "adapter_id": "t000"}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    yield from _api(tmp_path, 12)


@pytest.fixture(scope="module")
def described() -> Iterator[tuple[Api, schemathesis.BaseSchema]]:
    """An API over real stores, and its description without the stream that never ends."""
    with tempfile.TemporaryDirectory() as folder:
        for api in _api(Path(folder), 12):
            asyncio.run(api.publish())
            schema = schemathesis.openapi.from_asgi("/openapi.json", api.app)
            yield api, schema.exclude(path=ENDLESS)


@pytest.mark.slow
@pytest.mark.parametrize(("token", "examples"), [("ann", 5), (None, 2)], ids=["operator", "stranger"])
def test_no_call_that_the_description_allows_breaks_the_server(described, token: str | None, examples: int):
    api, schema = described
    operations = [result.ok() for result in schema.get_all_operations()]
    answered: set[int] = set()
    for operation in operations:
        _call(api, operation, token, examples, answered)
    assert len(operations) > 25
    assert answered >= ({200, 404} if token else {401})


def _call(api: Api, operation, token: str | None, examples: int, answered: set[int]) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
    def calls(case) -> None:
        api.now_s += 5.0  # how often one may ask is another test's
        # What the description cannot know: names that there are.
        case.path_parameters = {n: NAMES.get(n, value) for n, value in (case.path_parameters or {}).items()}
        if case.query and "wait_s" in case.query:
            case.query["wait_s"] = 0
        answer = case.call(headers=headers)
        answered.add(answer.status_code)
        seen = f"{case.as_curl_command()}: {answer.status_code} {answer.text}"
        _is_ours(operation.path, answer.status_code, answer.headers.get("content-type", [""])[0], seen)
        if token is None and operation.path.startswith("/v1"):
            assert answer.status_code in (401, 422, 429), seen

    calls()


HOSTILE = (
    "",
    " ",
    "\x00",
    "../..",
    "%2e%2e%2f",
    "-1",
    "1e999",
    "NaN",
    "null",
    "[]",
    "a" * 5000,
    "\u202e",
    "'; --",
    "{{7*7}}",
)
BODIES = (
    "",
    "{",
    "[]",
    "null",
    "7",
    '"x"',
    "NaN",
    '{"a": 1}',
    "[" * 2000,
    '{"tier": {"a": []}}',
    '{"ttl_s": 1e999}',
    "\ud83d",
)


async def test_no_call_that_the_description_forbids_breaks_the_server(api: Api):
    """Hostile words in every place of every address and query, and bodies that are none."""
    answered: set[int] = set()
    async with client(api, "ann") as ann:
        for path, methods in api.app.openapi()["paths"].items():
            for method, operation in methods.items():
                if path == ENDLESS:
                    continue
                names = [
                    p["name"] for p in operation.get("parameters", ()) if p["in"] == "query" and p["name"] != "wait_s"
                ]
                bodies = BODIES if "requestBody" in operation else ("",)
                for number, word in enumerate(HOSTILE):
                    api.now_s += 60.0
                    place = re.sub(r"{(\w+)}", lambda m, n=number, w=word: _placed(m[1], n, w), path)
                    query = dict.fromkeys(names, word)
                    body = bodies[number % len(bodies)].encode(errors="surrogatepass")
                    kind = {"Content-Type": "application/json"}
                    answer = await ann.request(method, place, params=query, content=body, headers=kind)
                    answered.add(answer.status_code)
                    seen = f"{method} {place} {query} {body!r}: {answer.status_code} {answer.text}"
                    _is_ours(path, answer.status_code, answer.headers.get("content-type", ""), seen)
    assert answered >= {404, 422}


def _placed(name: str, number: int, word: str) -> str:
    """Every other time the real name, so that what lies behind it is reached."""
    return NAMES[name] if number % 2 and name in NAMES else quote(word, safe="")


def _is_ours(path: str, status: int, kind: str, seen: str) -> None:
    """Nothing that nobody meant: no 5xx but our own 503, and each error is a problem document."""
    assert status < 500 or status == 503, seen
    assert status < 400 or not path.startswith("/v1") or kind == "application/problem+json", seen

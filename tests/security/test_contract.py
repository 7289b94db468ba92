"""The API against its own description: calls that nobody thought of, made from OpenAPI, seeded and bounded."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode

from tests.api.conftest import Api, _api

ENDLESS = "/v1/fleets/{fleet}/ring/events"
POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
NAMES = {"fleet": "fleet", "tenant": "t000", "adapter": "t000", "group": "warm", "adapter_id": "t000"}


@pytest.fixture(scope="module")
def described() -> Iterator[tuple[Api, schemathesis.BaseSchema]]:
    """An API over real stores, and its description without the stream that never ends."""
    with tempfile.TemporaryDirectory() as folder:
        for api in _api(Path(folder), 12):
            asyncio.run(api.publish())
            schema = schemathesis.openapi.from_asgi("/openapi.json", api.app)
            yield api, schema.exclude(path=ENDLESS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("token", "mode", "examples"),
    [("ann", POSITIVE, 8), ("ann", NEGATIVE, 6), (None, POSITIVE, 2)],
    ids=["what is allowed", "what is not allowed", "without a token"],
)
def test_no_call_breaks_the_server_and_each_error_is_a_problem(described, token: str | None, mode, examples: int):
    api, schema = described
    operations = [result.ok() for result in schema.get_all_operations()]
    answered: set[int] = set()
    for operation in operations:
        _call(api, operation, token, mode, examples, answered)
    assert len(operations) > 25
    assert answered >= {POSITIVE: {200, 404}, NEGATIVE: {422}}[mode] if token else answered <= {200, 401, 422, 429, 503}


def _call(api: Api, operation, token: str | None, mode: GenerationMode, examples: int, answered: set[int]) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def calls(case) -> None:
        api.now_s += 5.0  # how often one may ask is another test's
        if mode is POSITIVE:
            # What the description cannot know: names that there are.
            case.path_parameters = {n: NAMES.get(n, value) for n, value in (case.path_parameters or {}).items()}
        if case.query and "wait_s" in case.query:
            case.query["wait_s"] = 0
        answer = case.call(headers=headers)
        answered.add(answer.status_code)
        seen = f"{case.as_curl_command()}: {answer.status_code} {answer.text}"
        assert answer.status_code < 500 or answer.status_code == 503, seen
        is_api = operation.path.startswith("/v1")
        if answer.status_code >= 400 and is_api:
            assert answer.headers["content-type"] == ["application/problem+json"], seen
        if token is None and is_api:
            assert answer.status_code in (401, 422, 429), seen

    # An operation without a parameter and a body cannot be called wrongly.
    with contextlib.suppress(*([Unsatisfiable] if mode is NEGATIVE else [])):
        calls()

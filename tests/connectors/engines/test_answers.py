"""Every answer that engines were seen to give, old and new shapes, and what it means."""

import json

import pytest

from autoscaler.connectors.engines.answers import (
    Verdict,
    adapters_listed,
    load_answer,
    merged_listed,
    unload_answer,
    words_of,
)


def nested(message: str, kind: str, code: int) -> str:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def flat(message: str, code: int) -> str:
    return json.dumps({"object": "error", "message": message, "type": "BadRequestError", "code": code})


ALREADY = "The lora adapter 'a1' has already been loaded. If you want to load the adapter in place, set 'load_inplace'."
RANK = "LoRA rank 64 is greater than max_lora_rank 16."


@pytest.mark.parametrize(
    ("status", "body", "verdict"),
    [
        (200, "Success: LoRA adapter 'a1' added successfully.", Verdict.DONE),
        (200, '{"success": true, "loaded_adapters": {"a1": "/a1"}}', Verdict.DONE),
        (200, '{"success": false, "error_message": "no"}', Verdict.REFUSED),
        (400, nested(ALREADY, "InvalidUserInput", 400), Verdict.ALREADY),
        (400, flat(ALREADY, 400), Verdict.ALREADY),
        (400, '{"success": false, "error_message": "LoRA adapter a1 is already loaded"}', Verdict.ALREADY),
        (404, nested("Loading lora a1 failed: No adapter found for /nowhere", "NotFoundError", 404), Verdict.REFUSED),
        (500, nested(RANK, "InternalServerError", 500), Verdict.REFUSED),
        (500, nested("NCCL error on rank 1", "InternalServerError", 500), Verdict.BUSY),
        (500, nested("CUDA out of memory", "InternalServerError", 500), Verdict.BUSY),
        (400, nested("The lora name 'base' is the base model's", "InvalidUserInput", 400), Verdict.REFUSED),
        (400, nested("[{'type': 'missing'}]", "Bad Request", 400), Verdict.REFUSED),
        (404, '{"detail":"Not Found"}', Verdict.UPDATING_OFF),
        (404, "", Verdict.UPDATING_OFF),
        (405, '{"detail":"Method Not Allowed"}', Verdict.UPDATING_OFF),
        (503, "upstream connect error", Verdict.BUSY),
        (429, "", Verdict.BUSY),
        (401, '{"error":"Unauthorized"}', Verdict.BUSY),
    ],
)
def test_a_load_is_judged_by_status_and_words(status: int, body: str, verdict: Verdict) -> None:
    assert load_answer(status, body).verdict is verdict


@pytest.mark.parametrize(
    ("status", "body", "verdict"),
    [
        (200, "Success: LoRA adapter 'a1' removed successfully.", Verdict.DONE),
        (404, nested("The lora adapter 'a1' cannot be found.", "NotFoundError", 404), Verdict.UNKNOWN),
        (400, flat("The lora adapter 'a1' cannot be found.", 400), Verdict.UNKNOWN),
        (404, '{"detail":"Not Found"}', Verdict.UPDATING_OFF),
        (400, flat("both 'lora_name' and 'lora_int_id' needed", 400), Verdict.REFUSED),
        (500, "oops", Verdict.BUSY),
    ],
)
def test_an_unload_is_judged_by_status_and_words(status: int, body: str, verdict: Verdict) -> None:
    assert unload_answer(status, body).verdict is verdict


def test_the_engines_own_words_are_kept() -> None:
    assert load_answer(500, nested(RANK, "InternalServerError", 500)).words == f"500: {RANK}"
    assert words_of(flat("flat words", 400)) == "flat words"
    assert words_of('{"detail": [{"loc": ["body"]}]}') == "[{'loc': ['body']}]"
    assert words_of("plain text\n") == "plain text"
    assert words_of("[1, 2]") == "[1, 2]"
    assert len(words_of("x" * 10_000)) == 500


def test_the_base_model_is_no_adapter() -> None:
    body = {"data": [{"id": "base", "root": "/m", "parent": None}, {"id": "a1", "root": "/a1", "parent": "base"}]}
    assert adapters_listed(json.dumps(body)) == {"a1": "/a1"}


@pytest.mark.parametrize("body", ["", "<html>", "[]", '{"data": 3}', '{"data": [{"parent": "x"}]}', "null"])
def test_what_is_no_list_is_none(body: str) -> None:
    assert adapters_listed(body) is None


def test_an_engine_with_a_merged_checkpoint_lists_its_adapter_as_a_model_of_its_own():
    cards = [{"id": "acme", "root": "/merged/acme", "parent": None}, {"id": "base"}, {"id": "b", "parent": "base"}]
    assert merged_listed(json.dumps({"data": cards}), "base") == {"acme"}
    assert merged_listed("no list", "base") == frozenset()

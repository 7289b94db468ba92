"""Commands that ask a controller: what they print, and what they say when it does not answer or says no."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

from autoscaler.domain.fleet import Tier
from autoscaler.policy.exports import to_yaml
from autoscaler.ring import encode
from tests.api.conftest import Api, _api
from tests.cli.serving import free_port, serving


@pytest.fixture
def api(tmp_path: Path):
    yield from _api(tmp_path, 12)


@pytest.fixture
def ask(api: Api, run, monkeypatch: pytest.MonkeyPatch):
    """Runs a command as the operator, on the fleet."""
    with serving(api.app) as url:
        monkeypatch.setenv("LORA_AUTOSCALER_URL", url)
        monkeypatch.setenv("LORA_AUTOSCALER_TOKEN", "ann")
        yield run


def test_an_override_is_set_listed_explained_and_cleared(ask, api: Api):
    put = ask("override", "set", "t003", "cold", "--reason", "load test", "--ttl", "1h30m")
    assert put.code == 0
    assert put.out.startswith("t003 is COLD until ")
    assert "by ann (revision 1); it was WARM" in put.out
    (kept,) = api.stores.overrides.overrides("fleet")
    assert (kept.tier, kept.reason, kept.expires_at_s - kept.created_at_s) == (Tier.COLD, "load test", 5400)
    listed = ask("override", "list").out.splitlines()
    assert listed[1].split()[:3] == ["t003", "cold", "active"]
    assert ask("override", "list", "--json").json["items"][0]["actor"] == "ann"
    api.tick()
    assert "Override" in ask("explain", "tenant/t003").out
    cleared = ask("override", "clear", "t003")
    assert cleared.out == "the override of t003 to COLD (load test) is cleared; the policy decides again\n"
    assert ask("override", "list").out == "there are no overrides\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["override", "set", "t0033", "cold", "--reason", "test", "--ttl", "1h"], 1, "did you mean 't003'?"),
        (["override", "set", "t003", "cold", "--reason", "x", "--ttl", "1h"], 2, "'x' must be 3 to 500 characters"),
        (["override", "set", "t003", "cold", "--reason", "test", "--ttl", "91d"], 2, "'91d' is more than 90d"),
        (["override", "set", "t003", "cold", "--reason", "test", "--ttl", "5"], 2, "write 30m, 4h, 1h30m or 2d"),
        (["override", "set", "t003", "cold", "--reason", "test", "--ttl", "0s"], 2, "is no duration"),
        (["override", "set", "t003", "tepid", "--reason", "test", "--ttl", "1h"], 2, "invalid choice: 'tepid'"),
        (["override", "clear", "t003"], 1, "'t003' has no override"),
        (["override", "clear", "t003", "--if-revision", "4"], 1, "is at revision 0, not 4"),
        (["explain", "tenant/t0033"], 1, "did you mean 't003'?"),
        (["explain", "tenent/t003"], 1, "ask for one of tenant/NAME"),
        (["explain", "t003"], 2, "write KIND/NAME, such as tenant/acme"),
        (["explain", "group/warm", "--fleet", "fleett"], 1, "did you mean 'fleet'?"),
        (["explain", "group/warm", "--token", "nobody"], 2, "this token is not known"),
        (["override", "clear", "t003", "--token", "rob"], 1, "rob is a reader; this needs an operator"),
        (["explain", "group/warm", "--server", "localhost"], 2, "it must be a URL such as http://127.0.0.1:8080"),
        (["explain", "group/warm", "--token-file", "nowhere"], 2, "nowhere: no such file or directory"),
        (["detach", "--undo"], 1, "'fleet' is not detached"),
    ],
)
def test_a_refusal_is_one_sentence_with_the_remedy_and_the_right_code(ask, words, code, said):
    ran = ask(*words)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_both_forms_of_a_subject_are_understood_and_json_is_the_api_s_answer(ask):
    said = ask("explain", "group", "warm")
    assert said.out == ask("explain", "group/warm").out
    assert said.out.startswith("warm has 3 of 3 replicas ready")
    assert "What would change it:" in said.out
    assert ask("explain", "group/warm", "--json").json["subject"] == "group/warm"


def test_a_token_file_is_read_without_its_line_end(ask, tmp_path, monkeypatch):
    monkeypatch.delenv("LORA_AUTOSCALER_TOKEN")
    (tmp_path / "token").write_text("ann\n")
    assert ask("explain", "group/warm", "--token-file", tmp_path / "token").code == 0
    (tmp_path / "token").write_text("\n")
    assert "the file is empty" in ask("explain", "group/warm", "--token-file", tmp_path / "token").err


def test_without_a_token_the_remedy_is_named(ask, monkeypatch):
    monkeypatch.delenv("LORA_AUTOSCALER_TOKEN")
    assert "LORA_AUTOSCALER_TOKEN" in ask("explain", "group/warm", "--fleet", "fleet").err


def test_nobody_listens(run):
    ran = run("explain", "group/warm", "--server", f"http://127.0.0.1:{free_port()}")
    assert ran.code == 2
    assert "no controller answers" in ran.err
    assert "connection refused" in ran.err


def test_another_server_is_told_from_a_controller(run):
    app = FastAPI()

    @app.get("/v1/fleets", response_class=PlainTextResponse)
    async def page() -> str:
        return "<html>"

    with serving(app) as url:
        assert "is this a lora-autoscaler API?" in run("override", "list", "--server", url).err
        assert "is this a lora-autoscaler API?" in run("override", "list", "--server", url, "--fleet", "x").err


def test_detach_says_what_was_done_and_what_remains_and_back(ask, api: Api):
    ran = ask("detach", "--reason", "uninstalling")
    assert ran.code == 0
    assert "opened the gates of 2 replicas" in ran.out
    assert "routers keep ring epoch" in ran.out
    found = api.stores.detachments.read("fleet")
    assert found is not None
    assert (found.actor, found.reason) == ("ann", "uninstalling")
    assert ask("detach", "--undo").out.startswith("fleet is managed again")
    assert api.stores.detachments.read("fleet") is None


def test_a_difference_takes_demand_from_a_controller(ask, api: Api, tmp_path: Path):
    policy, snapshot = tmp_path / "policy.yaml", tmp_path / "ring.json"
    policy.write_text(to_yaml(api.world.policy))
    snapshot.write_bytes(encode(api.world.snapshot()))
    url = os.environ["LORA_AUTOSCALER_URL"]
    report = ask("policy", "diff", policy, policy, "--snapshot", snapshot, "--server", url, "--json").json
    assert report["ring"]["moves_between"] == 0
    assert report["unknown"][0].startswith("what comes next")


def engine(*, updating: bool, root: str = "") -> FastAPI:
    """An engine's list of models, and its load endpoint where adapters can be loaded at run time."""
    app = FastAPI()

    @app.get("/v1/models")
    async def models() -> dict:
        listed = [{"id": "base", "root": "base"}] + ([{"id": "t000", "root": root, "parent": "base"}] if root else [])
        return {"object": "list", "data": listed}

    if updating:

        @app.post("/v1/load_lora_adapter")
        async def load(body: dict) -> PlainTextResponse:
            assert body == {}, "doctor must not load anything"
            return PlainTextResponse("bad request", 400)

    return app


def test_doctor_probes_engines_without_changing_them(ask, api: Api):
    with serving(engine(updating=True, root="/adapters/t000")) as good, serving(engine(updating=False)) as bad:
        for replica, url in zip(("warm-000", "warm-001"), (good, bad), strict=True):
            address = url.removeprefix("http://")
            api.world.replicas[replica] = replace(api.world.replicas[replica], address=address)
        api.tick()
        found = {(f["check"], f["subject"]): f for f in ask("doctor", "--fleet", "fleet", "--json").json}
    assert found["engine", "fleet warm-000"]["state"] == "fine"
    assert found["resolver", "fleet warm-000"]["state"] == "fine"
    assert found["engine", "fleet warm-001"]["state"] == "wrong"
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" in found["engine", "fleet warm-001"]["remedy"]
    assert "VLLM_LORA_RESOLVER_CACHE_DIR" in found["resolver", "fleet warm-001"]["remedy"]


def test_doctor_tells_a_dead_engine_a_detached_fleet_and_a_condition(ask, api: Api):
    ran = ask("doctor", "--fleet", "fleet", "--json")
    by_check: dict[str, list] = {}
    for finding in ran.json:
        by_check.setdefault(finding["check"], []).append(finding)
    assert set(by_check) >= {"controller", "tick", "fleet", "signal", "router", "engine"}
    assert all(set(f) == {"check", "subject", "state", "message", "remedy"} for f in ran.json)
    assert all(f["remedy"] for f in ran.json if f["state"] == "wrong")
    # The world's clock stands in 1970, which is the fault that this fleet has.
    assert [f["state"] for f in by_check["tick"]] == ["wrong"]
    assert ran.code == 1
    assert "WRONG  tick fleet:" in ask("doctor", "--fleet", "fleet").out

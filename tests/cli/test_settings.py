"""Settings and tokens: valid whole, or everything that is wrong with them."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from autoscaler.api.auth import Role
from autoscaler.cli.credentials import TokensFile
from autoscaler.cli.errors import UsageError
from autoscaler.cli.settings import Settings, Source, parse_credentials, parse_settings
from autoscaler.cli.sources import prometheus_settings

FULL = """
listen: {host: 0.0.0.0, port: 9000}
state: var
metrics:
  source: prometheus
  router: llm-d
  prometheus:
    url: https://mimir/prometheus
    bearerTokenFile: secret/token
    headers: {X-Scope-OrgID: team-a}
    matchers: {cluster: eu-1}
    timeout: 3s
fleets:
  chat: {routers: {a: "http://10.0.0.1:9901/stats/prometheus"}, local: {replicas: 4}}
log: {format: json, level: warning}
"""


def errors(text: str) -> dict[str, str]:
    found = parse_settings(text.encode(), Path("settings.yaml"))
    assert isinstance(found, tuple)
    return {e.path: e.message for e in found}


def test_an_empty_mapping_has_every_default_and_listens_on_loopback_only():
    found = parse_settings(b"{}", Path("settings.yaml"))
    assert isinstance(found, Settings)
    assert (found.listen.host, found.listen.port, found.metrics.source) == ("127.0.0.1", 8080, Source.SCRAPE)
    assert found.fleet("any").local.replicas == 2


def test_a_full_file_is_read_and_its_file_names_start_from_its_folder():
    found = parse_settings(FULL.encode(), Path("/etc/lora/settings.yaml"))
    assert isinstance(found, Settings)
    assert found.path(found.state) == Path("/etc/lora/var")
    assert found.fleet("chat").local.replicas == 4
    told = prometheus_settings(found, found.metrics.prometheus)
    assert told.bearer_token_file == Path("/etc/lora/secret/token")
    assert (told.timeout_s, dict(told.headers), dict(told.matchers)) == (
        3.0, {"X-Scope-OrgID": "team-a"}, {"cluster": "eu-1"}
    )  # fmt: skip
    assert told.ca_file is None


def test_all_errors_come_at_once_with_their_paths_and_the_nearest_key():
    found = errors("listen: {port: 99999}\nplatfrom: local\nmetrics: {source: prometheus}\nlog: {level: loud}")
    assert set(found) == {"listen.port", "platfrom", "metrics.prometheus", "log.level"}
    assert "did you mean `platform`" in found["platfrom"]
    assert "needs `prometheus.url`" in found["metrics.prometheus"]


def test_a_section_that_is_wrong_is_not_also_called_missing():
    assert set(errors("metrics: {source: prometheus, prometheus: {url: ftp://x}}")) == {"metrics.prometheus.url"}


@pytest.mark.parametrize("text", ["", "[]", "a: &x 1", "\x00", "listen: 80"])
def test_what_is_no_settings_file_has_an_answer(text: str):
    assert errors(text)


def entry(token: str, role: str, more: str = "") -> str:
    return f"- {{name: {token}, role: {role}, sha256: {hashlib.sha256(token.encode()).hexdigest()}{more}}}\n"


async def test_a_token_can_be_withdrawn_while_the_process_runs(tmp_path: Path):
    path = tmp_path / "tokens.yaml"

    def write(text: str, age_s: float) -> None:
        path.write_text(text)
        os.utime(path, (time.time() - age_s, time.time() - age_s))

    write(entry("ann", "operator") + entry("rob", "reader", ", fleets: [chat]"), 20)
    table = TokensFile(path, time.time)
    ann, rob = await table.identify("ann"), await table.identify("rob")
    assert ann is not None
    assert rob is not None
    assert (ann.role, ann.fleets) == (Role.OPERATOR, None)
    assert (rob.role, rob.fleets) == (Role.READER, frozenset({"chat"}))
    write("nonsense", 15)
    assert await table.identify("ann") is not None, "an invalid file keeps the last valid one"
    write(entry("rob", "reader"), 10)
    assert await table.identify("ann") is None


def test_at_the_start_tokens_must_be_valid_and_say_what_is_wrong(tmp_path: Path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        TokensFile(tmp_path / "nowhere", time.time)
    (tmp_path / "tokens.yaml").write_text("- {name: ann, role: admin, sha256: ABC}")
    with pytest.raises(UsageError, match=r"\[0\]\.role"):
        TokensFile(tmp_path / "tokens.yaml", time.time)


def test_an_empty_list_of_credentials_is_valid_and_lets_nobody_in():
    assert parse_credentials(b"[]", Path("t")) == ()

"""Only somebody whom a login or a proxy names, and who is listed, may change something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dashboard.settings import Settings, SettingsError, read_settings
from dashboard.viewer import allowed, judged, proxied

SET_UP = Settings(operator_token="secret", operators=frozenset({"ada@example.com", "*@ops.example.com"}))


@pytest.mark.parametrize(
    ("name", "settings", "logins", "why"),
    [
        ("ada@example.com", replace(SET_UP, operator_token=""), False, "only reads"),
        ("", SET_UP, True, "Log in"),
        ("", SET_UP, False, "Nobody said who you are"),
        ("eve@example.com", SET_UP, False, "not among this dashboard's operators"),
        ("ada@example.com", replace(SET_UP, operators=frozenset()), False, "not among"),
    ],
)
def test_who_may_not_change_anything_is_told_why(name: str, settings: Settings, logins: bool, why: str):
    who = judged(name, settings, logins)
    assert not who.may_change
    assert why in who.why_not


@pytest.mark.parametrize("name", ["ada@example.com", "Ada@Example.com", "bo@ops.example.com"])
def test_a_listed_operator_may(name: str):
    assert judged(name, SET_UP, logins=False).may_change


@pytest.mark.parametrize("name", ["@", "x@evil.com", "ops.example.com", "a@xops.example.com", "*@evil.com", ""])
def test_a_domain_admits_its_own_addresses_only(name: str):
    assert not allowed(name, frozenset({"*@ops.example.com"}))


def test_the_proxy_s_header_is_read_whatever_its_case_and_not_trusted_with_control_characters():
    assert proxied({"x-forwarded-user": " ada "}, "X-Forwarded-User") == "ada"
    assert proxied({"X-Forwarded-User": "ada\x00root"}, "X-Forwarded-User") == ""
    assert proxied({"X-Forwarded-User": "a" * 101}, "X-Forwarded-User") == ""
    assert proxied({"X-Other": "ada"}, "X-Forwarded-User") == ""


def test_settings_come_from_the_environment_and_tokens_from_files(tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("from-file\n")
    found = read_settings(
        {
            "LORA_AUTOSCALER_URL": "http://api:8080/", "LORA_AUTOSCALER_TOKEN_FILE": str(file),
            "LORA_AUTOSCALER_OPERATORS": "Ada@example.com, *@ops.example.com",
            "LORA_AUTOSCALER_PRICE_PER_REPLICA_HOUR": "2.5",
        }
    )  # fmt: skip
    assert (found.url, found.token, found.price) == ("http://api:8080", "from-file", 2.5)
    assert found.operators == {"ada@example.com", "*@ops.example.com"}
    assert "from-file" not in repr(found), "a token is never printed"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("TOKEN_FILE", "/nowhere/token", "/nowhere/token cannot be read"),
        ("PRICE_PER_REPLICA_HOUR", "cheap", "PRICE_PER_REPLICA_HOUR is 'cheap'"),
        ("REFRESH_S", "-1", "REFRESH_S is '-1'"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(name: str, value: str, says: str):
    with pytest.raises(SettingsError, match=says):
        read_settings({f"LORA_AUTOSCALER_{name}": value})

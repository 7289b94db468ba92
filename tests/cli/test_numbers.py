"""Numbers that no command can use are refused with their flag and what is allowed, before anything starts."""

import pytest

from autoscaler.cli import main

PROMETHEUS = ("--prometheus", "http://127.0.0.1:9")


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "x"])
@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (("simulate",), "--hours"), (("simulate",), "--rate"), (("simulate",), "--scale"), (("simulate",), "--speed"),
        (("demo",), "--duration"), (("demo",), "--scale"), (("demo",), "--speed"),
        (("backtest", "--policy", "p", "--rates", "r"), "--capacity"),
    ],
)  # fmt: skip
def test_a_quantity_must_be_a_number_above_0(capsys, command: tuple[str, ...], flag: str, value: str):
    assert f"argument {flag}: {value!r} must be a number above 0" in refused(capsys, *command, flag, value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("simulate", "--startup", "-1"), "--startup: '-1' must be a number, at least 0"),
        (("simulate", "--scrape-delay", "inf"), "--scrape-delay: 'inf' must be a number, at least 0"),
        (("demo", "--start", "nan"), "--start: 'nan' must be a number, at least 0"),
        (("simulate", "--seed", "-1"), "--seed: '-1' must be a whole number from 0 to 4294967295"),
        (("demo", "--seed", "1.5"), "--seed: '1.5' must be a whole number from 0 to 4294967295"),
        (("simulate", "--jobs", "0"), "--jobs: '0' must be a whole number from 1 to 1024"),
        (("simulate", "--replicas", "0"), "--replicas: '0' must be a whole number from 1 to 4096"),
        (("simulate", "--adapters", "-3"), "--adapters: '-3' must be a whole number from 1 to 1000000"),
        (("simulate", "--max-loras", "0"), "--max-loras: '0' must be a whole number from 1 to 4096"),
        (("demo", "--port-base", "99999"), "--port-base: '99999' must be a whole number from 1 to 65000"),
        (("calibrate", *PROMETHEUS, "--max-loras", "-1"), "--max-loras: '-1' must be a whole number from 1 to 4096"),
        (("override", "clear", "acme", "--if-revision", "-1"), "--if-revision: '-1' must be a whole number from 0"),
    ],
)
def test_what_is_out_of_bounds_is_told_with_the_bounds(capsys, words: tuple[str, ...], said: str):
    assert said in refused(capsys, *words)


def test_what_says_how_to_replay_needs_a_trace(capsys):
    assert main(["demo", "--speed", "2", "--scale", "0.5"]) == 2
    assert "--scale, --speed would not be used without a --trace" in capsys.readouterr().err


def refused(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    return str(capsys.readouterr().err)

"""`--fail` and `--generate` of `simulate`: what their words mean, and one sentence where they mean nothing."""

from pathlib import Path

import pytest

from autoscaler.cli import parser
from autoscaler.cli.errors import UsageError
from autoscaler.cli.simulation_scenario import failures_of, generator_of
from autoscaler.simulator.strategies.failures import Failure, Kind
from autoscaler.simulator.traffic import Burst, GeneratorSettings, TraceError

USUAL = GeneratorSettings(adapters=10, rate_rps=5.0, season_s=600.0, season_ratio=2.0)
KEYS = (
    "zipf_exponent", "on", "off", "always_on", "season", "season_ratio", "lifetime", "bursts", "prompt_tokens",
    "output_tokens", "tokens_spread", "window",
)  # fmt: skip


def test_failures_are_times_kinds_and_lengths_in_order_of_time() -> None:
    told = failures_of(["1h:scrapes:10m", "90s:kill", "1h30m:hang:500ms", "2m:routers:1m", "0s:machines:20m"], 7200.0)
    assert told == (
        Failure(0.0, Kind.MACHINES, 1200.0),
        Failure(90.0, Kind.KILL),
        Failure(120.0, Kind.ROUTERS, 60.0),
        Failure(3600.0, Kind.SCRAPES, 600.0),
        Failure(5400.0, Kind.HANG, 0.5),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("30m", "write TIME:KIND or TIME:KIND:FOR, such as 30m:kill"),
        ("30m:explode", "kinds are kill, hang, scrapes, routers, machines"),
        ("30:kill", "--fail 30:kill is no failure"),
        ("30m:hang:x", "is no failure"),
        ("30m:hang:1m:1m", "is no failure"),
        ("30m:hang", "hang has to last: say for how long"),
        ("30m:kill:1m", "a kill takes no time"),
        ("3h:kill", "is after the end, which is at 2h"),
    ],
)
def test_what_is_no_failure_is_told_with_what_would_be(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        failures_of([text], 7200.0)


def test_a_generator_s_settings_are_said_by_their_names_with_units() -> None:
    told = generator_of(
        ["zipf_exponent=1.3", "on=5m", "off=10m", "always_on=2", "season=2h", "season_ratio=3", "lifetime=1h",
         "bursts=3:30m:10m:5", "bursts=0:1h:90s:2.5", "prompt_tokens=700", "output_tokens=50", "tokens_spread=0.2",
         "window=5s"], USUAL, None,
    )  # fmt: skip
    bursts = (Burst(3, 1800.0, 600.0, 5.0), Burst(0, 3600.0, 90.0, 2.5))
    assert told == GeneratorSettings(10, 5.0, 1.3, 300.0, 600.0, 2, 7200.0, 3.0, 3600.0, bursts, 700.0, 50.0, 0.2, 5.0)
    assert generator_of(["off=0", "lifetime=0"], USUAL, None) == USUAL
    assert generator_of([], USUAL, None) == USUAL


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("on", "write KEY=VALUE; keys are zipf_exponent, on, off"),
        ("rate_rps=4", "keys are "),
        ("on=fast", "it must be a duration"),
        ("on=300", "it must be a duration"),
        ("always_on=1.5", "a whole number"),
        ("zipf_exponent=nan", "a number"),
        ("bursts=3:30m:10m", "write bursts=ADAPTER:START:FOR:FACTOR"),
        ("bursts=x:30m:10m:5", "write bursts="),
    ],
)
def test_what_the_generator_cannot_take_is_told(word: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        generator_of([word], USUAL, None)


@pytest.mark.parametrize("word", ["bursts=10:30m:10m:5", "season_ratio=0.5", "on=0", "tokens_spread=-1"])
def test_settings_that_cannot_be_drawn_are_refused(word: str) -> None:
    with pytest.raises(TraceError):
        generator_of([word], USUAL, None)


def test_of_a_trace_only_the_law_of_its_adapters_can_be_told() -> None:
    assert generator_of(["zipf_exponent=0.5"], USUAL, Path("a.csv")).zipf_exponent == 0.5
    with pytest.raises(UsageError, match="only zipf_exponent goes with it"):
        generator_of(["on=5m"], USUAL, Path("a.csv"))


def test_the_help_names_every_kind_and_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["simulate", "--help"])
    told = capsys.readouterr().out
    assert all(f":{kind}" in told for kind in Kind)
    assert all(key in told for key in KEYS)
    with pytest.raises(UsageError, match=", ".join(KEYS)):
        generator_of(["?"], USUAL, None)

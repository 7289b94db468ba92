"""What a Prometheus has recorded of a range of time, kept as a file that `simulate --trace` reads."""

from __future__ import annotations

import argparse
import asyncio
import csv
import gzip
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from autoscaler.cli.backtest import moment
from autoscaler.cli.backtest_recording import given_router, reached_prometheus, read_span, recorded_catalogue
from autoscaler.cli.errors import UsageError, check_readable, refuse_unused
from autoscaler.connectors.metrics.connection import PrometheusSettings
from autoscaler.connectors.metrics.router_presets import ROUTERS
from autoscaler.domain.observation import Catalogue, Floats
from autoscaler.policy.model import FleetPolicy

_WINDOW_S = 60.0
_MOST_VALUES = 2_000_000  # read at a time, three tables of them: 50 MB
Span = tuple[float, float, float]
"""First and last end of a window, and its length, s; ends are since the Unix epoch."""
_FEWEST_WINDOWS = 8
_HEAD = ("client_id", "window_start_s", "rate_rps", "prompt_tokens", "output_tokens")


@contextmanager
def trace_of(
    arguments: argparse.Namespace, policy: FleetPolicy, policy_file: Path
) -> Iterator[tuple[Path | None, float]]:
    """The trace's file and where in it to begin; what a URL gives is kept in `--record`, or as long as this lasts.

    Raises UsageError.
    """
    told: str | None = arguments.trace
    if told is not None and told.startswith(("http://", "https://")):
        with TemporaryDirectory(prefix="lora-autoscaler-") as folder:
            yield _recorded(arguments, policy, policy_file, Path(folder))
    else:
        refuse_unused(
            "without a Prometheus' URL as --trace",
            **{"--record": arguments.record, "--settings": arguments.settings, "--router": given_router(arguments)},
        )
        refuse_unused("without a --trace", **{"--lengths": None if told else arguments.lengths})
        check_readable(**{"--trace": None if told is None else Path(told), "--lengths": arguments.lengths})
        yield None if told is None else Path(told), _seconds_in(arguments.start)


def _seconds_in(text: str | None) -> float:
    try:
        value = float(text or 0.0)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise UsageError(f"--start {text} must be seconds from the beginning of the trace, at least 0")
    return value


def _recorded(
    arguments: argparse.Namespace, policy: FleetPolicy, policy_file: Path, folder: Path
) -> tuple[Path, float]:
    kept: Path | None = arguments.record
    bucket_s = policy.forecast.bucket_s
    window_s = _WINDOW_S if bucket_s % _WINDOW_S == 0 else bucket_s
    length_s, now_s = arguments.hours * arguments.speed * 3600.0, time.time()
    whole_s = now_s // window_s * window_s
    start_s = whole_s - length_s if arguments.start is None else moment(arguments.start, "--start")
    if not 0 < length_s <= now_s - start_s:
        raise UsageError("the range of --start and --hours ends in the future, or is empty; take an earlier --start")
    begins_s = start_s // window_s * window_s
    span_s = (begins_s + window_s, -(-(start_s + length_s) // window_s) * window_s, window_s)
    source = Source(*reached_prometheus(arguments, arguments.trace), policy, policy_file)
    file = folder / (kept.name if kept else "prometheus.csv.gz")
    for note in asyncio.run(record(source, span_s, file)):
        print(f"Note: {note}", file=sys.stderr)
    if kept is None:
        return file, start_s - begins_s
    try:
        copyfile(file, kept)
    except OSError as error:
        raise UsageError(f"{kept} cannot be written: {error.strerror or error}") from error
    return kept, start_s - begins_s


@dataclass(frozen=True, slots=True)
class Source:
    """A Prometheus, whose names its routers' series have, and the policy, with its file, that says what to look for."""

    reached: PrometheusSettings
    router: str
    policy: FleetPolicy
    policy_file: Path

    async def read(self, catalogue: Catalogue, span_s: Span, counter: str = "") -> tuple[Floats, Floats]:
        """Ends of windows (P), and a counter's rates by window and adapter (P, A): requests where none is named."""
        return await read_span(self.reached, self.router, self.policy, catalogue, span_s, counter)


async def record(source: Source, span_s: Span, file: Path) -> tuple[str, ...]:
    """Write rates and mean lengths of the windows that end in a span, a bounded piece at a time.

    Returns what to say of them. Raises UsageError where nothing can be read.
    """
    first_s, last_s, window_s = span_s
    catalogue, notes = await recorded_catalogue(
        source.reached, source.router, source.policy, source.policy_file, first_s - window_s, last_s
    )
    preset = ROUTERS[source.router]
    windows, points = round((last_s - first_s) / window_s) + 1, max(_FEWEST_WINDOWS, _MOST_VALUES // len(catalogue.ids))
    known, tokens = np.zeros(windows, np.bool_), False
    with gzip.open(file, "wt", newline="") if file.suffix == ".gz" else file.open("w", newline="") as lines:
        rows = csv.writer(lines, lineterminator="\n")
        rows.writerow(_HEAD)
        for begin in range(0, windows, points):
            end = min(windows, begin + points) - 1
            span = (first_s + begin * window_s, first_s + end * window_s, window_s)
            ends_s, rates = await source.read(catalogue, span)
            counters = (preset.prompt_tokens, preset.completion_tokens)
            lengths = [
                (await source.read(catalogue, span, counter))[1] if counter else rates * np.nan for counter in counters
            ]
            rows.writerows(_rows(catalogue, ends_s - window_s, rates, lengths))
            known[begin : end + 1] = (~np.isnan(rates)).any(axis=1)
            tokens = tokens or bool((lengths[0] > 0).any())
    if not known.any():
        url, router = source.reached.url, source.router
        raise UsageError(f"{url} holds no request of a router between these times; is --router {router} right?")
    notes = (*notes, *_gaps(known))
    return notes if tokens else (*notes, "no tokens are recorded: a request counts as 500")


def _gaps(known: npt.NDArray[np.bool_]) -> Iterator[str]:
    """What to say of windows that are unknown, of which one at least is not."""
    first, last, windows = int(known.argmax()), int(known[::-1].argmax()), len(known)
    within = int((~known).sum()) - first - last
    if first:
        yield f"the first {first} of {windows} windows are unknown: what is played begins after them"
    if within:
        yield f"{within} of {windows} windows are unknown and played as those before them"
    if last:
        yield f"the last {last} of {windows} windows are unknown: nothing is played there"


def _rows(
    catalogue: Catalogue, starts_s: Floats, rates: Floats, lengths: Sequence[Floats]
) -> Iterator[tuple[str, ...]]:
    """A line for each known window of an adapter that had requests in this piece, and one at least for each window."""
    kept = (rates > 0).any(axis=0) | (np.arange(rates.shape[1]) == 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        prompt, output = (each / rates for each in lengths)
    for i, start_s in enumerate(starts_s.tolist()):
        for j in np.flatnonzero(kept & ~np.isnan(rates[i])).tolist():
            means = (f"{v[i, j]:.6g}" if 0 < v[i, j] < math.inf else "" for v in (prompt, output))
            yield (catalogue.ids[j], f"{start_s:.0f}", f"{rates[i, j]:.6g}", *means)

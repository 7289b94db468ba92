"""The demo's live table, or a plain line every few seconds where nobody watches a terminal."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from autoscaler.cli.demo_report import Tally
from autoscaler.cli.demo_scenarios import Phase
from autoscaler.domain.decisions import DecisionRecord
from autoscaler.telemetry import FleetView, records_of

_LINE_EVERY_S = 5.0
_RECENT_S = 10.0
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the demo stands."""

    phase: Phase
    elapsed_s: float
    tally: Tally
    view: FleetView | None
    in_flight: int
    loads: int


class Progress:
    """Shows standings on standard error."""

    def __init__(self, quiet: bool = False) -> None:
        self._console = Console(file=sys.stderr)
        self._live = (
            Live(console=self._console, refresh_per_second=2, transient=False) if self._console.is_terminal else None
        )
        self._line_s = 0.0
        self._recent: list[DecisionRecord] = []
        self._seen: FleetView | None = None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, standing: Standing) -> None:
        """Show one."""
        if standing.view is not None and standing.view is not self._seen:
            self._recent = [*self._recent, *records_of(standing.view, self._seen)][-_SHOWN:]
            self._seen = standing.view
        if self._live is not None:
            self._live.update(self._table(standing))
        elif time.monotonic() - self._line_s >= _LINE_EVERY_S:
            self._line_s = time.monotonic()
            self._console.print(self._line(standing), highlight=False, soft_wrap=True)

    def _line(self, s: Standing) -> str:
        rps, p50, p99 = _recent(s.tally)
        tiers = "" if s.view is None else " ".join(f"{t.value} {n}" for t, n in s.view.plan.tiers.counts().items())
        last = f"; {self._recent[-1].subject}: {self._recent[-1].message}" if self._recent else ""
        return (
            f"{s.phase.name} {s.elapsed_s:.0f}/{s.phase.seconds:.0f} s: {rps:.0f} requests/s, "
            f"TTFT p50 {p50} p99 {p99}, {s.in_flight} in flight, {s.loads} adapter loads, {_replicas(s)}, {tiers}{last}"
        )

    def _table(self, s: Standing) -> Group:
        rps, p50, p99 = _recent(s.tally)
        table = Table(title=f"{s.phase.name}  {s.elapsed_s:.0f} of {s.phase.seconds:.0f} s", title_style="bold")
        for column in (
            "requests/s",
            "TTFT p50",
            "TTFT p99",
            "in flight",
            "adapter loads",
            "replicas",
            "tiers",
            "epoch",
        ):
            table.add_column(column, justify="right")
        tiers = "" if s.view is None else ", ".join(f"{n} {t.value}" for t, n in s.view.plan.tiers.counts().items())
        epoch = "" if s.view is None else str(s.view.plan.ring.epoch)
        table.add_row(f"{rps:.0f}", p50, p99, str(s.in_flight), str(s.loads), _replicas(s), tiers, epoch)
        lines = [Text(f"{r.subject}  {r.before} -> {r.after}  {r.reason.value}: {r.message}") for r in self._recent]
        return Group(table, *lines)


def _replicas(s: Standing) -> str:
    if s.view is None:
        return ""
    decisions = s.view.plan.scale.decisions
    return ", ".join(f"{name} {d.ready}/{d.desired}" for name, d in decisions.items())


def _recent(tally: Tally) -> tuple[float, str, str]:
    """Requests/s that ended, and TTFT, of the last seconds."""
    batches = tally.results[-round(_RECENT_S) :]
    if not batches:
        return 0.0, "-", "-"
    ttft = np.concatenate([b.ttft_s for b in batches])
    known = ttft[~np.isnan(ttft)]
    if not len(known):
        return 0.0, "-", "-"
    p50, p99 = np.quantile(known, [0.5, 0.99])
    return len(ttft) / len(batches), f"{p50:.2f} s", f"{p99:.2f} s"

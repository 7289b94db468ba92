"""PromQL of a tick: a fixed number of bulk queries, whatever the number of adapters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.connectors.metrics.connection import quoted, selector
from autoscaler.connectors.metrics.presets import EnginePreset
from autoscaler.connectors.metrics.router_presets import RouterPreset


@dataclass(frozen=True, slots=True)
class Scope:
    """What every query of ours is narrowed to.

    Attributes:
        matchers: labels of every series, the router's too.
        engine_matchers: labels of the engines' series, on top.
        copies: labels in which duplicates of one series differ.
        window_s: what rates are taken over.
    """

    matchers: Mapping[str, str]
    engine_matchers: Mapping[str, str]
    copies: tuple[str, ...]
    window_s: float

    @property
    def window(self) -> str:
        """The window as PromQL says it."""
        return f"{round(self.window_s * 1000)}ms"


def engine_samples(preset: EnginePreset, scope: Scope) -> str:
    """All raw samples of the window, of every series that the preset knows: rates are taken from them by ourselves."""
    names = "|".join(preset.metric_names())
    inner = f"__name__=~{quoted(names)}"
    narrowed = selector("", scope.matchers, scope.engine_matchers)
    rest = narrowed.removeprefix("{").removesuffix("}")
    return f"{{{inner}{',' + rest if rest else ''}}}[{scope.window}]"


def pair_rate(metric: str, by: Sequence[str], scope: Scope) -> str:
    """Growth per second of a router's counter, summed to `by`; only what grew.

    `rate()` is blind to the first sample of a series that is born, which for a cold adapter is its first request. Such
    a series counts from zero, if its target was scraped at the window's start already.
    """
    return f"sum by ({', '.join(by)}) ({_each(metric, scope)}) > 0"


def ttft_p99(preset: RouterPreset, scope: Scope) -> str:
    """99th percentile of time to first byte per adapter, in the router's unit; only of adapters with traffic."""
    each = _each(preset.ttft_buckets, scope)
    return f"histogram_quantile(0.99, sum by ({preset.adapter_label}, le) ({each})) > 0"


def newest_age(metric: str, scope: Scope) -> str:
    """Seconds since the newest sample of a metric; nothing where there is none."""
    return f"min(time() - timestamp({selector(metric, scope.matchers)}))"


def in_flight(preset: RouterPreset, scope: Scope) -> str:
    """Requests that routers have open on each replica."""
    series = _once(selector(preset.in_flight, scope.matchers), scope)
    return f"sum by ({preset.in_flight_label}) ({series})"


def adapter_rate_over(router: RouterPreset, scope: Scope, step_s: float) -> str:
    """Mean request rate per adapter over each step of recorded history; only where it grew."""
    return pair_rate(router.requests, [router.adapter_label], replace(scope, window_s=step_s))


def heard_over(router: RouterPreset, scope: Scope, step_s: float) -> str:
    """How many of the routers' series have two samples in each step; nothing where no router was heard."""
    return f"count(rate({selector(router.requests, scope.matchers)}[{round(step_s * 1000)}ms]))"


def own_rate_over(expression: str, scope: Scope, step_s: float) -> str:
    """Mean over each step of recorded history of a policy's own rate, looked at once a window."""
    look_s = min(scope.window_s, step_s)
    return f"avg_over_time(({expression})[{round(step_s * 1000)}ms:{round(look_s * 1000)}ms])"


def newest_samples(metric: str, scope: Scope) -> str:
    """The newest samples of an engine's metric that lie within the window."""
    return f"last_over_time({selector(metric, scope.matchers, scope.engine_matchers)}[{scope.window}])"


def _each(metric: str, scope: Scope) -> str:
    series = selector(metric, scope.matchers)
    up = selector("up", scope.matchers)
    window = scope.window
    born = f"({series} unless {series} offset {window}) and on (job, instance) ({up} offset {window} == 1)"
    return _once(f"({born}) / {scope.window_s:g} or rate({series}[{window}])", scope)


def _once(expression: str, scope: Scope) -> str:
    """Each series once, where copies of a highly available Prometheus are kept side by side."""
    return f"max without ({', '.join(scope.copies)}) ({expression})" if scope.copies else expression

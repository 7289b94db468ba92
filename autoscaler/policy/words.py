"""The closed sets of words that a policy may use. The values are what YAML says."""

from collections.abc import Mapping
from enum import StrEnum


class Mode(StrEnum):
    """How far the controller goes with a plan."""

    ADVISE = "advise"
    PROPOSE = "propose"
    ENFORCE = "enforce"


class Actuation(StrEnum):
    """Who changes replica counts: this controller, or whatever reads its exported metrics."""

    SCALE = "scale"
    EXPORT = "export"


class Preset(StrEnum):
    """Which engine serves, hence its metric names and adapter calls. `custom` takes every query from `signals`."""

    VLLM = "vllm"
    SGLANG = "sglang"
    CUSTOM = "custom"


class CatalogueKind(StrEnum):
    """Where a policy's catalogue comes from."""

    LIST = "list"
    FILE = "file"
    CONFIG_MAP = "configMap"
    PATH_TEMPLATE = "pathTemplate"
    ENGINE = "engine"


class Isolation(StrEnum):
    """What a tenant was promised: replicas shared with others, or replicas of its own."""

    SHARED = "shared"
    DEDICATED = "dedicated"


class HotSource(StrEnum):
    """Where a hot group comes from: made from the warm group's template, or declared in advance at 0 replicas."""

    TEMPLATE = "template"
    DECLARED = "declared"


class Trigger(StrEnum):
    """What may promote a tenant to HOT, besides pins, overrides and a promised isolation."""

    LOAD = "load"
    SLO = "slo"
    NOISY_NEIGHBOUR = "noisyNeighbour"


class SlotShortage(StrEnum):
    """What to do where adapter slots are short although nothing is left to demote."""

    HOLD = "hold"
    GROW = "grow"


class Overflow(StrEnum):
    """Where routers may send a request whose owners are over the bound."""

    OWNERS = "owners"
    STANDBYS = "standbys"
    ANY = "any"


class UnknownAdapter(StrEnum):
    """What routers do with a name that the fleet does not know."""

    COLD = "cold"
    REJECT = "reject"


class Day(StrEnum):
    """A day of the week."""

    MON = "mon"
    TUE = "tue"
    WED = "wed"
    THU = "thu"
    FRI = "fri"
    SAT = "sat"
    SUN = "sun"


class SignalName(StrEnum):
    """A signal whose PromQL a policy may state: rates per second, times in seconds, shares 0 to 1.

    The first block has one series per replica, the second one per adapter; `resident` has one per replica and adapter,
    1 while it is in memory.
    """

    RUNNING = "running"
    WAITING = "waiting"
    DEFERRED = "deferred"
    KV_USAGE = "kvUsage"
    TTFT_MEAN = "ttftMean"
    TTFT_P99 = "ttftP99"
    TTFT_LATE = "ttftLate"
    QUEUE_TIME_MEAN = "queueTimeMean"
    ITL_MEAN = "itlMean"
    PROMPT_TOKENS = "promptTokens"
    GENERATION_TOKENS = "generationTokens"
    REQUESTS = "requests"
    PREEMPTIONS = "preemptions"
    ADAPTER_LOADS = "adapterLoads"
    ADAPTER_LOAD_MEAN = "adapterLoadMean"

    ADAPTER_REQUESTS = "adapterRequests"
    ADAPTER_PROMPT_TOKENS = "adapterPromptTokens"
    ADAPTER_COMPLETION_TOKENS = "adapterCompletionTokens"
    ADAPTER_ERRORS = "adapterErrors"
    ADAPTER_TTFT_MEAN = "adapterTtftMean"
    ADAPTER_TTFT_P99 = "adapterTtftP99"

    RESIDENT = "resident"


REPLICA_SIGNALS: Mapping[SignalName, str] = {
    SignalName.RUNNING: "running",
    SignalName.WAITING: "waiting",
    SignalName.DEFERRED: "deferred",
    SignalName.KV_USAGE: "kv_usage_ratio",
    SignalName.TTFT_MEAN: "ttft_mean_s",
    SignalName.TTFT_P99: "ttft_p99_s",
    SignalName.TTFT_LATE: "late_ratio",
    SignalName.QUEUE_TIME_MEAN: "queue_time_mean_s",
    SignalName.ITL_MEAN: "itl_mean_s",
    SignalName.PROMPT_TOKENS: "prompt_tokens_per_s",
    SignalName.GENERATION_TOKENS: "generation_tokens_per_s",
    SignalName.REQUESTS: "requests_per_s",
    SignalName.PREEMPTIONS: "preemptions_per_s",
    SignalName.ADAPTER_LOADS: "adapter_loads_per_s",
    SignalName.ADAPTER_LOAD_MEAN: "adapter_load_mean_s",
}
"""Signal -> field of `ReplicaSignals`."""

ADAPTER_SIGNALS: Mapping[SignalName, str] = {
    SignalName.ADAPTER_REQUESTS: "requests_per_s",
    SignalName.ADAPTER_PROMPT_TOKENS: "prompt_tokens_per_s",
    SignalName.ADAPTER_COMPLETION_TOKENS: "completion_tokens_per_s",
    SignalName.ADAPTER_ERRORS: "errors_per_s",
    SignalName.ADAPTER_TTFT_MEAN: "ttft_mean_s",
    SignalName.ADAPTER_TTFT_P99: "ttft_p99_s",
}
"""Signal -> column of `Traffic`."""

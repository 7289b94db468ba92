"""The closed sets of words that a policy may use. The values are what YAML says."""

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
    """A signal whose PromQL a policy may state. The first block is per replica, the second per adapter."""

    RUNNING = "running"
    WAITING = "waiting"
    DEFERRED = "deferred"
    KV_USAGE = "kvUsage"
    TTFT_MEAN = "ttftMean"
    TTFT_P99 = "ttftP99"
    QUEUE_TIME = "queueTime"
    ITL = "itl"
    PROMPT_TOKENS = "promptTokens"
    GENERATION_TOKENS = "generationTokens"
    REQUESTS = "requests"
    PREEMPTIONS = "preemptions"
    ADAPTER_LOADS = "adapterLoads"
    ADAPTER_LOAD_TIME = "adapterLoadTime"
    RESIDENT = "resident"
    ADAPTER_REQUESTS = "adapterRequests"
    ADAPTER_PROMPT_TOKENS = "adapterPromptTokens"
    ADAPTER_COMPLETION_TOKENS = "adapterCompletionTokens"
    ADAPTER_ERRORS = "adapterErrors"
    ADAPTER_TTFT_MEAN = "adapterTtftMean"
    ADAPTER_TTFT_P99 = "adapterTtftP99"

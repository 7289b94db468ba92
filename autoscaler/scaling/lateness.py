"""Up to which load first tokens are in time, told from the share that was late at each load.

What a largest batch would carry is no promise of latency: where prompts are long and come in heaps, first tokens are
late from half of it on, and where they are short and even, they are in time beyond what the batches promised.
Worked numbers: .1 % late at 2,000 tokens/s and 10 % at 3,000, for long: 1 % is reached at 2,500.
"""

from __future__ import annotations

import math

import numpy as np

from autoscaler.domain.observation import Floats
from autoscaler.scaling.batching import Levels

KNOWN_TICKS = 2.0
PROVEN_TICKS = 8.0
DOUBT_TICKS = 10.0  # of what smaller loads had: one heap of long prompts is late at whatever load it meets
NEVER = 1e-4  # of first tokens: fewer are taken for none


def in_time(levels: Levels, may_be_late: float) -> tuple[float, float]:
    """Tokens/s of one replica that were proven to be in time, 0 where none were, and that may be asked; maybe infinite.

    A load counts as late only beside a smaller one that was in time: what is late at any load, more replicas do not
    cure. The late share cannot fall with load, so neighbours that seem to say so are taken together. What a load had
    for a minute or two is drawn to what smaller ones had: a limit that is not true is never passed, and never refuted.
    """
    known = [level for level in levels if level.late_ticks >= KNOWN_TICKS]
    if not known:
        return 0.0, math.inf
    tokens = np.array([level.tokens_per_s for level in known])
    ticks, seen = np.array([x.late_ticks for x in known]), np.array([x.late_ratio for x in known])
    below = np.concatenate([seen[:1], (np.cumsum(ticks * seen) / np.cumsum(ticks))[:-1]])
    rising = _rising((ticks * seen + DOUBT_TICKS * below) / (ticks + DOUBT_TICKS), ticks)
    late = np.maximum(rising, NEVER)
    limit = max(may_be_late, NEVER)
    good = int((late <= limit).sum())
    often = [t for t, level in zip(tokens[:good].tolist(), known, strict=False) if level.late_ticks >= PROVEN_TICKS]
    proven = max(often, default=0.0)
    if good in (0, len(known)):
        return proven, math.inf
    share = math.log(limit / late[good - 1]) / math.log(late[good] / late[good - 1])
    return proven, float(tokens[good - 1] + share * (tokens[good] - tokens[good - 1]))


def _rising(values: Floats, weights: Floats) -> Floats:
    """The nearest sequence that never falls, by weighted squares (n), for a few values."""
    total = np.concatenate([[0.0], np.cumsum(values * weights)])
    weight = np.concatenate([[0.0], np.cumsum(weights)])
    n = len(values)
    means = [
        [(total[b + 1] - total[a]) / (weight[b + 1] - weight[a]) if b >= a else 0.0 for b in range(n)] for a in range(n)
    ]
    return np.array([max(min(means[a][b] for b in range(i, n)) for a in range(i + 1)) for i in range(n)])

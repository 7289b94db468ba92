"""How often adapters are loaded into too few slots, from how often each is asked for: the LRU's arithmetic.

An adapter that is asked for `r` times a second and was used last more than `T` seconds ago is gone: those that came
since pushed it out. `T` is the one time in which as many different adapters are asked for as there are slots (Che, Tung
and Wang, "Hierarchical Web Caching Systems", 2002): sum(1 - exp(-r T)) = slots. Each adapter is then loaded, and pushed
out, r exp(-r T) times a second. It is an estimate: engines that gather an adapter's requests while they wait for its
slot load less often, and adapters that push each other out within one batch are loaded more often, three times in the
demo's deep thrash (28,000 an hour estimated, 93,000 counted). Where engines count their loads, the count goes first.
"""

from __future__ import annotations

import numpy as np

from autoscaler.domain.observation import Floats, Ints

_STEPS = 40
_CLOSE_ADAPTERS = 1e-3  # of a slot: loads are then right to a thousandth or so


def loads_per_s(rates: Floats, replica: Ints, slots: Ints) -> Floats:
    """Loads of each (adapter, replica) pair, which are its evictions too: float64 (P), 0 where all of a replica fit.

    Args:
        rates: requests/s of each pair, above 0 (P).
        replica: index of the pair's replica (P).
        slots: adapter slots of each replica (R).
    """
    used = np.bincount(replica, minlength=slots.size)
    short = used > slots
    total = np.bincount(replica, rates, slots.size)
    # The time grows from below to the answer: the sum is concave, so its tangent never overshoots.
    time_s = np.where(short, slots / np.maximum(total, 1e-300), 0.0)
    pairs = short[replica]
    rates_short, replica_short = rates[pairs], replica[pairs]
    for _ in range(_STEPS):
        absent = np.exp(-rates_short * time_s[replica_short])
        held = used - np.bincount(replica_short, absent, slots.size)
        grows = np.bincount(replica_short, rates_short * absent, slots.size)
        lacks = np.where(short & (grows > 0), slots - held, 0.0)
        if np.all(lacks <= _CLOSE_ADAPTERS):
            break
        time_s += np.maximum(lacks, 0.0) / np.where(grows > 0, grows, 1.0)
    out = np.zeros(rates.size)
    out[pairs] = rates_short * np.exp(-rates_short * time_s[replica_short])
    return out

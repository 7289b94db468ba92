"""Where nothing changes, nothing moves: two placements of the same loads settle within two ticks."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.ring import Limits, moves_between, place


@given(
    adapters=st.integers(2, 60),
    slots=st.integers(1, 8),
    residents=st.integers(4, 40),
    skew=st.floats(0.0, 1.5),
    replication=st.integers(1, 3),
    seed=st.integers(0, 999),
)
@settings(max_examples=150, deadline=None)
def test_constant_loads_come_to_rest(
    adapters: int, slots: int, residents: int, skew: float, replication: int, seed: int
) -> None:
    loads = np.random.default_rng(seed).permutation(1.0 / np.arange(1, adapters + 1) ** skew)
    names = tuple(f"a{seed}-{i}" for i in range(adapters))
    ring, limits = tuple(f"s{i:04d}" for i in range(slots)), Limits(residents_per_slot=residents)
    placement = place(names, loads, ring, limits=limits, replication=replication)
    for _ in range(3):
        before, placement = (
            placement,
            place(names, loads, ring, limits=limits, replication=replication, previous=placement),
        )
    assert len(moves_between(before, placement, limits)) == 0
    assert before.exceptions == placement.exceptions

"""Makes Envoy's ring hash prefer the owner that the snapshot names first.

Envoy builds a ring of its own from the endpoints' `hash_key`, with points XXH64(f"{hash_key}_{i}"), and looks a
request's hash up in it. The route of each adapter gives that hash. Within an adapter's subset it is that of the
smallest number whose text falls on the first owner; in a ring of all members it is a point of that owner, so that
others may come and go. So no placement is left to Envoy, and what it does when that owner is over the bound stays its
own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from math import ceil

from autoscaler.ring.hashing import h64

SUBSET_RING_SIZE = 64
"""Envoy's `minimum_ring_size` with subsets: the least number of points, rounded up so that all hosts have the same."""
WHOLE_RING_SIZE = 16_384
"""The same without subsets: 1,000 hosts have the 16 points that preferences name, and one to spare for rounding."""
_NAMED_POINTS = 16


def point_of(adapter: str, hash_key: str) -> str:
    """The hash policy's text by which any ring of `WHOLE_RING_SIZE` that this host is in prefers it for `adapter`.

    Envoy's order among the others is shuffled by the hash, so adapters of one host have 16 orders between them.
    """
    return f"{hash_key}_{h64(adapter) % _NAMED_POINTS}"


def preference_key(hash_keys: Sequence[str]) -> str:
    """The hash policy's text by which a subset of these hosts (their `hash_key`s) prefers the first of them."""
    first = hash_keys[0]
    points, hosts = _ring(tuple(sorted(set(hash_keys))))
    return next(text for text in map(str, count()) if _host_of(text, points, hosts) == first)


@lru_cache(maxsize=65_536)
def _ring(hash_keys: tuple[str, ...]) -> tuple[list[int], list[str]]:
    each = ceil(SUBSET_RING_SIZE / len(hash_keys))
    ring = sorted((point, key) for key in hash_keys for point in _points(key, each))
    return [point for point, _ in ring], [key for _, key in ring]


@lru_cache(maxsize=65_536)
def _points(key: str, each: int) -> tuple[int, ...]:
    return tuple(h64(f"{key}_{i}") for i in range(each))


def _host_of(text: str, points: list[int], hosts: list[str]) -> str:
    return hosts[bisect_left(points, h64(text)) % len(points)]

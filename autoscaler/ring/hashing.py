"""Rendezvous hashing: the three functions that every router must compute alike.

`h` is XXH64 (seed 0) of the UTF-8 bytes of an id, `mix` is the finaliser of SplitMix64, and
`score(adapter, slot) = mix(h(adapter) ^ h(slot))`. An adapter belongs to the slots with the highest scores, so a slot
that joins or leaves moves only what it wins or loses (Thaler and Ravishankar, "Using name-based mappings to increase
hit rates", 1998). The hash is not keyed: where tenants may choose adapter ids, hash an internal id.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import xxhash

HASH_NAME = "hrw-xxh64-sm64-v1"
"""The name of this scheme in a snapshot's `hash` field."""

Hashes = npt.NDArray[np.uint64]

_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)


def h64(text: str) -> int:
    """XXH64, seed 0, of the UTF-8 bytes of `text`: an integer of 64 bits, without sign.

    Raises UnicodeEncodeError for text that has no UTF-8 form (a lone surrogate).
    """
    return int(xxhash.xxh64_intdigest(text.encode()))


def h64_many(texts: Iterable[str]) -> Hashes:
    """`h64` of each text: (n,) uint64. 100,000 ids take about 20 ms, so keep the result and do not ask again."""
    digest = xxhash.xxh64_intdigest
    return np.fromiter((digest(text.encode()) for text in texts), dtype=np.uint64)


def mix(z: Hashes) -> Hashes:
    """The finaliser of SplitMix64 on each element, modulo 2^64: any shape of uint64 in, the same shape out (new)."""
    z = z ^ (z >> np.uint64(30))
    z *= _MULTIPLIER_1
    z ^= z >> np.uint64(27)
    z *= _MULTIPLIER_2
    z ^= z >> np.uint64(31)
    return z


def scores(adapter_hashes: Hashes, slot_hashes: Hashes) -> Hashes:
    """The score of every adapter (rows) on every slot (columns): (n,), (m,) -> (n, m) uint64."""
    return mix(adapter_hashes[:, None] ^ slot_hashes[None, :])


def score(adapter: str, slot: str) -> int:
    """The score of one adapter on one slot: an integer of 64 bits, without sign."""
    return int(scores(h64_many([adapter]), h64_many([slot]))[0, 0])


def ranked(adapter: str, slots: Iterable[str]) -> tuple[str, ...]:
    """All `slots` by their score for `adapter`, highest first; equal scores by slot id, ascending by bytes."""
    by_id = sorted(slots, key=str.encode)
    # `~` turns "highest first" into "lowest first", and the stable sort then leaves equal scores in the order of ids.
    order = np.argsort(~scores(h64_many([adapter]), h64_many(by_id))[0], kind="stable")
    return tuple(by_id[i] for i in order.tolist())

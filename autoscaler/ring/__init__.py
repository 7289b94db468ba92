"""The ring: which replicas hold which adapter, so that routers in any language compute the same owners.

It decides slots, replication and placement, and writes and reads the snapshot that carries them. It knows nothing of
metrics, policies, clusters or clocks: loads, limits and the time are arguments.
"""

from autoscaler.ring.codec import MEDIA_TYPE, decode, digest, encode, to_document
from autoscaler.ring.diff import Move, ring_diff
from autoscaler.ring.hashing import HASH_NAME, h64, mix, ranked, score
from autoscaler.ring.holding import held_by_slot
from autoscaler.ring.moves import Budgeted, Moves, Urgency, moves_between, within_budget
from autoscaler.ring.owners import Chosen, Owners, Ring, Via
from autoscaler.ring.placement import (
    Infeasible,
    InfeasibleReason,
    Limits,
    Placement,
    PlacementError,
    restore,
)
from autoscaler.ring.replication import decide_choice, held_shares, resolve_replication
from autoscaler.ring.seating import place
from autoscaler.ring.slots import SeenReplica, Slot, SlotEvent, SlotState, SlotTable, advance
from autoscaler.ring.snapshot import (
    Choice,
    Fairness,
    HotGroup,
    LowerEpochError,
    MalformedSnapshotError,
    Member,
    MemberState,
    Overflow,
    RingSnapshot,
    SnapshotError,
    Unknown,
    UnsupportedSnapshotError,
    WrongDigestError,
    newest,
)

__all__ = [
    "HASH_NAME",
    "MEDIA_TYPE",
    "Budgeted",
    "Choice",
    "Chosen",
    "Fairness",
    "HotGroup",
    "Infeasible",
    "InfeasibleReason",
    "Limits",
    "LowerEpochError",
    "MalformedSnapshotError",
    "Member",
    "MemberState",
    "Move",
    "Moves",
    "Overflow",
    "Owners",
    "Placement",
    "PlacementError",
    "Ring",
    "RingSnapshot",
    "SeenReplica",
    "Slot",
    "SlotEvent",
    "SlotState",
    "SlotTable",
    "SnapshotError",
    "Unknown",
    "UnsupportedSnapshotError",
    "Urgency",
    "Via",
    "WrongDigestError",
    "advance",
    "decide_choice",
    "decode",
    "digest",
    "encode",
    "h64",
    "held_by_slot",
    "held_shares",
    "mix",
    "moves_between",
    "newest",
    "place",
    "ranked",
    "resolve_replication",
    "restore",
    "ring_diff",
    "score",
    "to_document",
    "within_budget",
]

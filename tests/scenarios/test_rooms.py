"""What went wrong elsewhere, told to diagnosis, tiering and scaling: the value and the reason that must hold here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autoscaler.diagnosis import DiagnosisMemory, diagnose
from autoscaler.domain.decisions import Reason, ScaleDecision
from autoscaler.domain.diagnosis import Cause
from autoscaler.domain.fleet import Group, Replica, ReplicaSignals, ReplicaState, Tier
from autoscaler.domain.observation import Catalogue, Observation, PairTraffic, Traffic
from autoscaler.domain.signals import Fresh, Missing
from autoscaler.policy.groups import ColdGroup
from autoscaler.policy.model import FleetPolicy
from autoscaler.policy.words import SlotShortage
from autoscaler.scaling import GroupDemand, ScaleView, ScalingMemory, decide_scale
from autoscaler.tiering import TieringMemory, TierView, decide_tiers
from tests.diagnosis.building import replica as engine
from tests.diagnosis.building import signals as engine_signals
from tests.scaling.building import NOON, SILENT, demand, policy, replicas, signals

UNKNOWN = GroupDemand()
NO_TRAFFIC = demand(0.0, requests=0.0)


class WarmGroup:
    """A warm group that obeys: each tick decides, and the next one runs what was desired."""

    def __init__(self, count: int, told: FleetPolicy | None = None) -> None:
        self.count, self.told, self.memory, self.now_s = count, told or policy(), ScalingMemory(), NOON
        self.history: list[ScaleDecision] = []

    def tick(
        self, seen: ReplicaSignals, wanted: GroupDemand, *, pending: int = 0, obey: bool = True, **group: str
    ) -> ScaleDecision:
        """One decision, fifteen seconds later."""
        self.now_s += 15.0
        ready = replicas(self.count - pending, seen)
        late = replicas(pending, SILENT, state=ReplicaState.PENDING, first=self.count - pending)
        view = ScaleView(
            {"warm": replace(Group("warm", Tier.WARM, self.count), **group)}, ready + late, {"warm": wanted}
        )
        plan, self.memory = decide_scale(view, self.told, self.memory, self.now_s)
        decision = plan.decisions["warm"]
        self.history.append(decision)
        self.count = decision.desired if obey else self.count
        return decision

    def ticks(self, times: int, seen: ReplicaSignals, wanted: GroupDemand, **fields) -> ScaleDecision:
        """The same several times."""
        for _ in range(times - 1):
            self.tick(seen, wanted, **fields)
        return self.tick(seen, wanted, **fields)


def test_traffic_that_stops_makes_averages_nan_and_still_gives_the_replicas_back():
    """Elsewhere 0/0 made every tick invalid, and seven GPUs stayed for ever."""
    group = WarmGroup(7)
    group.ticks(20, signals(), demand(4600.0))
    held = group.ticks(20, SILENT, NO_TRAFFIC)
    assert (held.desired, held.reason) == (7, Reason.STABILISING)
    done = group.ticks(8, SILENT, NO_TRAFFIC)
    assert [d.desired for d in group.history[-8:]] == [6, 5, 4, 3, 2, 1, 1, 1]
    assert (group.history[-7].reason, done.reason) == (Reason.IDLE, Reason.BOUNDS)


def test_an_empty_result_at_peak_is_not_zero():
    """Elsewhere no data was reported as 0 and the fleet went to its minimum at peak."""
    group = WarmGroup(12)
    group.ticks(30, signals(waiting=4, kv=0.7), demand(8000.0))
    for _ in range(40):
        got = group.tick(SILENT, UNKNOWN)
        assert (got.desired, got.reason) == (12, Reason.SIGNALS_MISSING)


def test_the_floor_holds_in_an_outage():
    """Elsewhere the function returned before its clamp when metrics were gone."""
    group = WarmGroup(2, policy(warm={"min_replicas": 5}))
    got = group.tick(SILENT, UNKNOWN)
    assert (got.recommended, got.desired, got.reason) == (2, 5, Reason.BOUNDS)


def test_pods_that_cannot_be_scheduled_are_no_load():
    """Elsewhere they had no metrics, counted as fully used, and a scale-in became a scale-out."""
    group = WarmGroup(8)
    group.ticks(30, signals(kv=0.1, tokens=100.0), demand(500.0), pending=4, obey=False)
    got = group.history[-1]
    assert (got.recommended, got.desired, got.reason) == (1, 8, Reason.PENDING_REPLICAS)
    idle = WarmGroup(8)
    idle.ticks(30, SILENT, NO_TRAFFIC, pending=4, obey=False)
    assert (idle.history[-1].desired, idle.history[-1].reason) == (7, Reason.IDLE)


def test_unschedulable_pods_do_not_ask_for_more_of_their_kind():
    group = WarmGroup(8)
    got = group.ticks(10, signals(waiting=20), demand(9000.0), pending=4, obey=False)
    assert (got.desired, got.reason) == (8, Reason.PENDING_REPLICAS)


def test_a_hand_or_a_sync_that_sets_replicas_back_is_held_and_named_never_fought():
    """Elsewhere controllers fought and pods were killed in a loop."""
    group = WarmGroup(3)
    group.ticks(25, signals(waiting=1), demand(1500.0))
    for _ in range(40):
        got = group.tick(signals(waiting=20), demand(9000.0), foreign_actor="argocd-controller")
        assert (got.desired, got.reason) == (3, Reason.FOREIGN_ACTOR)
    assert got.recommended == 13
    assert "argocd-controller set 3 replicas" in got.trail[-1].message


def test_what_is_recommended_moves_although_what_is_desired_is_held():
    """Elsewhere decision gauges were overwritten by "no change"."""
    group = WarmGroup(4)
    seen = [group.tick(signals(waiting=w), demand(0.0), foreign_actor="kubectl").recommended for w in (6.0, 10.0, 20.0)]
    assert seen == [5, 8, 8]


def test_a_metrics_gap_in_the_middle_of_a_scale_in_stops_it_and_costs_one_window():
    group = WarmGroup(6)
    low = signals(kv=0.1, tokens=100.0)
    group.ticks(22, low, demand(500.0))
    assert group.count == 4
    gap = group.tick(SILENT, UNKNOWN)
    assert (gap.desired, gap.reason) == (4, Reason.SIGNALS_MISSING)
    after = group.ticks(20, low, demand(500.0))
    assert (after.desired, after.reason) == (4, Reason.STABILISING)
    assert group.ticks(1, low, demand(500.0)).desired == 3


SIXTEEN = tuple(f"a{i:02d}" for i in range(16))


def contention(slots: int, adapters: tuple[str, ...], seen: ReplicaSignals, told: FleetPolicy, count: int = 1):
    """One tick of all three rooms for adapters that all use every replica."""
    catalogue = Catalogue.of({a: (a, f"/adapters/{a}", "", 8) for a in adapters})
    size = len(adapters)
    fleet: tuple[Replica, ...] = tuple(engine(i, seen, slots) for i in range(count))
    rate = np.linspace(0.1, 0.5, size)
    nan = np.full(size, np.nan)
    pairs = PairTraffic(
        np.tile(np.arange(size), count), np.repeat(np.arange(count), size), np.tile(rate / count, count),
        np.full(size * count, 6.3), np.tile(rate * 100, count),
    )  # fmt: skip
    groups = {"warm": Group("warm", Tier.WARM, count)}
    traffic = Traffic(60.0, rate, rate * 400, rate * 100, rate * 0, nan, nan)
    look = Observation(NOON, catalogue, traffic, fleet, groups, pairs=pairs)
    diagnosis, _ = diagnose(look, told, DiagnosisMemory(), NOON)
    tokens = rate * 500
    view = replace(
        TierView.blank(catalogue.tenants), rate_tokens_per_s=tokens, mean_tokens_per_s=tokens,
        upper_tokens_per_s=tokens * 1.2, known=np.ones(size, np.bool_), diagnosis=diagnosis,
        ring_adapters=int(slots * count * told.tiering.slot_fill_ratio),
    )  # fmt: skip
    tiers, _ = decide_tiers(view, told, TieringMemory(), NOON)
    wanted = GroupDemand(Fresh(float(tokens.sum())), Fresh(float(tokens.sum())), Fresh(float(rate.sum())))
    scale_view = ScaleView(
        groups, fleet, {"warm": wanted}, diagnosis, unplaced_adapters=tiers.unplaced_adapters,
        wanted_adapters=tiers.wanted_adapters,
    )  # fmt: skip
    plan, _ = decide_scale(scale_view, told, ScalingMemory(), NOON)
    return diagnosis, tiers, plan


def test_sixteen_adapters_on_eight_slots_are_cured_by_tiers_not_by_replicas():
    """Elsewhere median TTFT went from 40 to 6,278 ms, and replicas were added."""
    late = engine_signals(running=12, waiting=30, deferred=27, kv_usage_ratio=0.05, ttft_mean_s=6.3)
    diagnosis, tiers, plan = contention(8, SIXTEEN, late, policy(capacity=None, cold=ColdGroup()), count=1)
    got = plan.decisions["warm"]
    assert diagnosis.groups["warm"].cause is Cause.THRASH
    assert (got.desired, got.reason) == (1, Reason.THRASH_NOT_SATURATION)
    assert tiers.counts() == {Tier.COLD: 9, Tier.WARM: 7, Tier.HOT: 0}
    assert tiers.explain("a00").reason is Reason.ADAPTER_SLOT_BUDGET
    assert [c.name for c in plan.conditions] == ["AdapterSlotsShort"]
    assert "3 replicas, or 18 adapter slots in each, would hold all 16" in plan.conditions[0].message


def test_the_recorded_contention_holds_the_count_moves_tiers_and_says_why():
    """vLLM 0.32 with 2 slots and 6 adapters: 16 waiting, 13 deferred, KV use .002, 8 of at most 8 running."""
    page = engine_signals(running=8, waiting=16, deferred=13, kv_usage_ratio=0.00195, ttft_mean_s=None)
    _, tiers, plan = contention(2, SIXTEEN[:6], page, policy(capacity=None, cold=ColdGroup()))
    got = plan.decisions["warm"]
    assert (got.current, got.desired, got.reason) == (1, 1, Reason.THRASH_NOT_SATURATION)
    assert got.trail[-1].message == "16 requests wait, 13 of them for an adapter slot, at KV use 0.0019"
    assert tiers.counts()[Tier.COLD] == 5


def test_short_slots_grow_the_group_only_by_the_policys_word():
    page = engine_signals(running=8, waiting=16, deferred=13, kv_usage_ratio=0.00195)
    told = policy(capacity=None, on_adapter_slot_shortage=SlotShortage.GROW)
    _, _, plan = contention(2, SIXTEEN[:6], page, told)
    got = plan.decisions["warm"]
    assert (got.recommended, got.desired, got.reason) == (6, 5, Reason.STEP_LIMIT)


def test_one_adapter_that_no_replica_loads_blocks_no_other():
    """Elsewhere a load failed for ever, and everything behind it waited."""
    view = replace(
        TierView.blank(("bad", "good")), known=np.array([True, True]), upper_tokens_per_s=np.array([90.0, 10.0]),
        mean_tokens_per_s=np.array([90.0, 10.0]), loadable=np.array([False, True]), ring_adapters=1,
    )  # fmt: skip
    plan, _ = decide_tiers(view, policy(), TieringMemory(), NOON)
    assert (plan.tier("bad"), plan.explain("bad").reason) == (Tier.COLD, Reason.UNLOADABLE)
    assert plan.tier("good") is Tier.WARM


def test_a_lost_memory_only_makes_the_controller_cautious():
    group = WarmGroup(6)
    group.ticks(21, signals(kv=0.1, tokens=100.0), demand(500.0))
    group.memory = ScalingMemory()
    got = group.tick(signals(kv=0.1, tokens=100.0), demand(500.0))
    assert (got.desired, got.reason) == (5, Reason.STABILISING)
    assert group.tick(signals(waiting=20), demand(500.0)).desired == 9


@pytest.mark.parametrize("jump_s", [-7200.0, 86_400.0])
def test_a_clock_that_jumps_turns_no_direction_round(jump_s):
    group = WarmGroup(6)
    group.ticks(10, signals(kv=0.6), demand(3500.0))
    group.now_s += jump_s
    got = group.tick(signals(kv=0.6), demand(3500.0))
    assert got.desired == 6


def test_signals_that_come_and_go_every_other_tick_never_shrink():
    group = WarmGroup(6)
    for i in range(60):
        heard = i % 2 == 0
        group.tick(signals(kv=0.1, tokens=100.0) if heard else SILENT, demand(500.0) if heard else UNKNOWN)
    assert {d.desired for d in group.history} == {6}


def test_a_stale_router_alone_stops_scale_in():
    group = WarmGroup(6)
    stale = GroupDemand(Missing("stale by 95 s"), Missing("stale by 95 s"), Missing("stale by 95 s"))
    got = group.ticks(40, signals(kv=0.1, tokens=100.0), stale)
    assert (got.desired, got.reason) == (6, Reason.SIGNALS_MISSING)
    assert "stale by 95 s" in got.trail[-1].message

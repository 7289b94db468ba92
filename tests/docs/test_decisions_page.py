"""The page that says how decisions are made names every reason and cause, and its numbers are the code's."""

from pathlib import Path

import pytest

from autoscaler.diagnosis import neighbours, peers, replicas
from autoscaler.domain.diagnosis import Cause
from autoscaler.policy.model import FleetPolicy
from autoscaler.tiering import explain, limits, tenants
from tests.scaling.test_properties import REACHABLE as OF_SCALING

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "decisions.md").read_text()
DEFAULTS = FleetPolicy(name="fleet", base_model="base")


@pytest.mark.parametrize("reason", sorted({*OF_SCALING, *explain._SENTENCES}))
def test_every_reason_that_tiers_and_scale_can_have_is_on_the_page(reason):
    assert f"`{reason.value}`" in PAGE


@pytest.mark.parametrize("cause", [c for c in Cause if c is not Cause.NONE])
def test_every_cause_is_on_the_page(cause):
    assert f"| `{cause.value}` |" in PAGE


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("`diagnosis.idleKv` (0.5)", DEFAULTS.diagnosis.idle_kv_ratio == 0.5),
        ("`diagnosis.thrashLoads` (100)", DEFAULTS.diagnosis.thrash_loads_per_1000 == 100),
        ("`diagnosis.noisyScore` (0.5)", DEFAULTS.diagnosis.noisy_score_ratio == 0.5),
        ("1.6 times as slow", peers.SLOWER == 1.6),
        ("takes 0.25 s or more", replicas.SLOW_LOAD_S == 0.25),
        ("a fifth of a replica's tokens", neighbours.LOUD_SHARE == 0.2),
        ("before six windows", neighbours.FEWEST_WINDOWS == 6),
        ("fades by half in four windows", neighbours.WINDOWS_KEPT == 4),
        ("`tiering.hotThreshold` (3)", DEFAULTS.tiering.hot_threshold_replicas == 3),
        ("`demoteTicks` (8)", DEFAULTS.tiering.demote_ticks == 8),
        ("`coldThreshold` (1 token/s)", DEFAULTS.tiering.cold_threshold_tokens_per_s == 1),
        ("`tiering.dwell` (2 h)", DEFAULTS.tiering.dwell_s == 7200),
        ("at most five times (64 h)", tenants.MOST_WRONG == 5),
        ("inside counts 1.5 times", limits.STICKINESS == 1.5),
        ("`groups.hot.maxGroups` (4)", DEFAULTS.groups.hot.max_groups == 4),
        ("`tiering.slotFill` (0.9)", DEFAULTS.tiering.slot_fill_ratio == 0.9),
        ("`queuePerReplica` (5)", DEFAULTS.scaling.queue_per_replica == 5),
        ("`kvUsage` (0.8)", DEFAULTS.scaling.kv_usage_ratio == 0.8),
        ("`utilisation` (0.85; 0.9 with `ring.overflow: any`)", DEFAULTS.utilisation() == 0.85),
        ("`tolerance` (0.1)", DEFAULTS.scaling.tolerance_ratio == 0.1),
        ("`scaleOut.maxStep` (4)", DEFAULTS.scaling.scale_out.max_step_replicas == 4),
        ("`pendingGuard` (15 min", DEFAULTS.scaling.scale_out.pending_guard_s == 900),
        ("`scaleIn.maxStep` (1)", DEFAULTS.scaling.scale_in.max_step_replicas == 1),
        ("`margin` (0.1)", DEFAULTS.scaling.scale_in.margin_ratio == 0.1),
        (
            "`auto` is twice\n   `startup`, at least `stabilisation`",
            DEFAULTS.scaling.scale_in_horizon_s == 2 * DEFAULTS.scaling.startup_s,
        ),
        ("`stabilisation` (5 min)", DEFAULTS.scaling.scale_in.stabilisation_s == 300),
    ],
)
def test_the_pages_numbers_are_the_codes(text, value):
    assert text in PAGE
    assert value

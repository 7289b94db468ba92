"""A day in six hours: load rises and falls once, with noise, and capacity is learnt on the way."""

import numpy as np

from autoscaler.domain.fleet import Group, ReplicaState, Tier
from autoscaler.domain.signals import Fresh
from autoscaler.scaling import GroupDemand, ScaleView, ScalingMemory, decide_scale
from tests.scaling.building import NOON, SILENT, policy, replicas, signals

CARRIES, STARTUP_S, DAY_S, TICK_S = 1000.0, 180.0, 21_600.0, 30.0


def load_at(seconds: float) -> float:
    """Tokens/s: 2,000 in the night, 8,000 at the peak."""
    return 5000.0 - 3000.0 * float(np.cos(2 * np.pi * seconds / DAY_S))


def lives(told, noise: float, seed: int = 3):
    """(replica counts, changes, queue per replica) of a day; a forecast that is right up to a tenth."""
    rng, memory, count = np.random.default_rng(seed), ScalingMemory(), 4
    starting: list[float] = []
    counts, queues, queue = [], [], 0.0
    for tick in range(int(DAY_S // TICK_S)):
        passed = tick * TICK_S
        starting = [t for t in starting if t > passed]
        ready = count - len(starting)
        load = load_at(passed) * float(rng.lognormal(0.0, noise))
        served = min(load + queue * 500.0 / TICK_S, ready * CARRIES)
        queue = max(0.0, queue + (load - served) * TICK_S / 500.0)
        used = served / ready / CARRIES
        seen = signals(queue / ready, min(1.0, 0.8 * used), tokens=served / ready, running=40 * used)
        fleet = replicas(ready, seen) + replicas(len(starting), SILENT, state=ReplicaState.STARTING, first=ready)
        soon = max(load_at(passed), load_at(passed + STARTUP_S)) * 1.1
        later = max(load_at(passed + s) for s in range(0, 3600, 300)) * 1.1
        wanted = GroupDemand(Fresh(soon), Fresh(later), Fresh(load / 500.0))
        view = ScaleView({"warm": Group("warm", Tier.WARM, count)}, fleet, {"warm": wanted})
        plan, memory = decide_scale(view, told, memory, NOON + passed)
        desired = plan.decisions["warm"].desired
        starting += [passed + STARTUP_S] * max(0, desired - count)
        counts.append(desired)
        queues.append(queue / ready)
        count = desired
    return np.array(counts), np.array(queues)


def turns(counts: np.ndarray) -> int:
    """How often growth turns into shrinking or back."""
    steps = np.sign(np.diff(counts))
    steps = steps[steps != 0]
    return int((np.diff(steps) != 0).sum())


def test_capacity_that_is_learnt_is_ready_before_it_is_needed_and_goes_once():
    counts, queues = lives(policy(capacity=None), noise=0.05)
    assert turns(counts) == 1
    assert (queues > 0).mean() < 0.01
    assert counts.max() <= np.ceil(8800 / 700) + 1
    assert counts[-1] <= 6


def test_noise_of_a_fifth_does_not_make_it_flap():
    counts, _ = lives(policy(), noise=0.2)
    assert turns(counts) <= 3

"""Slots outlive replicas: who takes which slot, when one stands vacant, and when it leaves the ring."""

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.ring import SeenReplica, Slot, SlotEvent, SlotState, SlotTable, advance

GRACE_S = 60.0


def serving(*names, **more):
    return [SeenReplica(name, serving=True, **more) for name in names]


def loading(*names, **more):
    return [SeenReplica(name, serving=False, **more) for name in names]


def step(table, seen, now_s=0.0, drain=()):
    return advance(table, seen, now_s=now_s, slot_grace_s=GRACE_S, drain=drain)


def holders(table):
    return {slot.slot: (slot.state.value, slot.replica, slot.heir) for slot in table.slots}


def fleet(*names):
    return step(SlotTable(), serving(*names))[0]


def test_the_first_replicas_take_the_lowest_numbers_in_order_of_name():
    table, events = step(SlotTable(), serving("b", "a"))
    assert holders(table) == {"s0000": ("active", "a", ""), "s0001": ("active", "b", "")}
    assert events == (("s0000", SlotEvent.JOINED), ("s0001", SlotEvent.JOINED))


def test_a_new_slot_is_on_the_ring_only_when_its_replica_serves():
    table, events = step(fleet("a"), serving("a") + loading("b"))
    assert (table.ranked(), events) == (("s0000",), ())
    assert table.slot_of("b") == Slot("s0001", SlotState.PENDING, "b", 0.0)
    table, events = step(table, serving("a", "b"), now_s=9.0)
    assert (table.ranked(), events) == (("s0000", "s0001"), (("s0001", SlotEvent.JOINED),))


def test_a_restarted_replica_returns_to_its_slot():
    table, events = step(fleet("a", "b"), serving("a") + loading("b"), now_s=5.0)
    assert (table.vacant(), events) == (("s0001",), (("s0001", SlotEvent.VACATED),))
    assert table.ranked() == ("s0000", "s0001")
    table, events = step(table, serving("a", "b"), now_s=50.0)
    assert (table.vacant(), events) == ((), (("s0001", SlotEvent.RETURNED),))


def test_the_successor_of_a_crashed_replica_takes_the_lowest_vacant_slot():
    table, _ = step(fleet("a", "b", "c"), serving("c"), now_s=5.0)
    table, events = step(table, serving("c") + loading("d"), now_s=10.0)
    assert (holders(table)["s0000"], events) == (("vacant", "", "d"), ())
    table, events = step(table, serving("c", "d"), now_s=20.0)
    assert (holders(table)["s0000"], events) == (("active", "d", ""), (("s0000", SlotEvent.REPLACED),))
    assert table.vacant() == ("s0001",)


def test_a_slot_that_nobody_holds_leaves_the_ring_when_its_grace_is_over():
    table, _ = step(fleet("a", "b"), serving("a"), now_s=5.0)
    table, events = step(table, serving("a"), now_s=5.0 + GRACE_S - 0.1)
    assert (table.ranked(), events) == (("s0000", "s0001"), ())
    table, events = step(table, serving("a"), now_s=5.0 + GRACE_S)
    assert (table.ranked(), events) == (("s0000",), (("s0001", SlotEvent.LEFT),))


def test_a_replica_that_loads_for_longer_than_the_grace_keeps_its_number_and_joins_again():
    table, _ = step(fleet("a", "b"), serving("a") + loading("b"), now_s=5.0)
    table, events = step(table, serving("a") + loading("b"), now_s=100.0)
    assert (holders(table)["s0001"], events) == (("pending", "b", ""), (("s0001", SlotEvent.LEFT),))
    table, events = step(table, serving("a", "b"), now_s=101.0)
    assert (table.ranked(), events) == (("s0000", "s0001"), (("s0001", SlotEvent.JOINED),))


def test_in_a_rolling_update_with_surge_the_new_pod_takes_over_in_one_step():
    seen = serving("old-0", "old-1") + loading("new-0", replaces="old-1")
    table, events = step(fleet("old-0", "old-1"), seen)
    assert (holders(table)["s0001"], events) == (("active", "old-1", "new-0"), ())
    seen = serving("old-0", "old-1") + serving("new-0", replaces="old-1")
    table, events = step(table, seen, now_s=30.0)
    assert (holders(table)["s0001"], events) == (("active", "new-0", ""), (("s0001", SlotEvent.REPLACED),))
    assert table.displaced == ("old-1",)
    table, events = step(table, seen, now_s=31.0)  # the old pod lives on for a while and gets no new slot
    assert (len(table.slots), events) == (2, ())
    assert step(table, serving("old-0", "new-0"), now_s=40.0)[0].displaced == ()


def test_a_pod_that_its_platform_stops_leaves_its_slot_vacant_for_a_successor():
    table, events = step(fleet("a", "b"), serving("a") + serving("b", leaving=True), now_s=5.0)
    assert (table.vacant(), events) == (("s0001",), (("s0001", SlotEvent.VACATED),))


def test_a_drained_slot_leaves_the_ranking_at_once_and_goes_with_its_replica():
    table, events = step(fleet("a", "b"), serving("a", "b"), drain=["s0001"])
    assert (table.ranked(), events) == (("s0000",), (("s0001", SlotEvent.DRAINING),))
    assert table.slot_of("b").state is SlotState.DRAINING
    table, events = step(table, serving("a"), now_s=5.0, drain=["s0001"])
    assert (holders(table), events) == ({"s0000": ("active", "a", "")}, ())


def test_a_drain_that_is_taken_back_brings_the_slot_back():
    table, _ = step(fleet("a", "b"), serving("a", "b"), drain=["s0001"])
    table, events = step(table, serving("a", "b"), now_s=5.0)
    assert (table.ranked(), events) == (("s0000", "s0001"), (("s0001", SlotEvent.JOINED),))


def test_an_heir_that_dies_before_it_serves_is_forgotten():
    table, _ = step(fleet("a"), [])
    table, _ = step(table, loading("b"), now_s=1.0)
    table, _ = step(table, [], now_s=2.0)
    assert holders(table) == {"s0000": ("vacant", "", "")}


def test_a_labelled_replica_finds_its_slot_again_after_memory_is_lost():
    seen = [SeenReplica("a", True, label="s0004"), SeenReplica("b", True, label="s0002")]
    table, _ = step(SlotTable(), seen)
    assert {s.slot: s.replica for s in table.slots} == {"s0002": "b", "s0004": "a"}
    clash = [SeenReplica("a", True, label="s0004"), SeenReplica("b", True, label="s0004")]
    assert {s.slot: s.replica for s in step(SlotTable(), clash)[0].slots} == {"s0000": "b", "s0004": "a"}


def test_a_label_that_is_no_slot_name_is_ignored():
    for label in ("slot-1", "s1", "s00000", "s-001", "x0001"):
        table, _ = step(SlotTable(), [SeenReplica("a", True, label=label)])
        assert table.ranked() == ("s0000",), label


def test_state_round_trips():
    table, _ = step(fleet("a", "b"), serving("a") + loading("c"), now_s=3.5)
    assert SlotTable.from_state(table.state()) == table


names = st.sampled_from([f"pod-{i}" for i in range(8)])
sightings = st.lists(
    st.tuples(
        st.dictionaries(names, st.tuples(st.booleans(), st.booleans(), st.one_of(st.just(""), names)), max_size=8),
        st.floats(0, 100),
        st.sets(st.sampled_from(["s0000", "s0001", "s0002"]), max_size=1),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(sightings)
def test_whatever_happens_no_replica_has_two_slots_and_no_serving_replica_has_none(history):
    table, now_s = SlotTable(), 0.0
    for replicas, wait_s, drain in history:
        now_s += wait_s
        seen = [SeenReplica(name, *flags) for name, flags in replicas.items()]
        before = table
        table, events = step(table, seen, now_s=now_s, drain=drain)
        held = [name for slot in table.slots for name in (slot.replica, slot.heir) if name]
        assert len(set(held)) == len(held)
        assert len({slot.slot for slot in table.slots}) == len(table.slots)
        for slot in table.slots:
            if slot.state is SlotState.ACTIVE:
                holder = replicas[slot.replica]
                assert holder[0], f"{slot} is active, but its replica does not serve"
        for replica in seen:
            if replica.serving and not replica.leaving:
                assert replica.name in held or replica.name in table.displaced
        joined = {slot for slot, event in events if event is SlotEvent.JOINED}
        left = {slot for slot, event in events if event in (SlotEvent.LEFT, SlotEvent.DRAINING)}
        # A number may leave and be given anew in one step.
        assert set(table.ranked()) - set(before.ranked()) == joined - left
        assert set(before.ranked()) - set(table.ranked()) == left - joined

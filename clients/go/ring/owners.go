package ring

import (
	"cmp"
	"slices"
)

// The rule that named the owners.
const (
	ViaHot       = "hot"
	ViaException = "exception"
	ViaHash      = "hash"
	ViaFallback  = "fallback"
	ViaBase      = "base"
	ViaCold      = "cold"
)

// Owners says who serves an adapter now.
type Owners struct {
	Members  []Member // active, the preferred one first; empty where nobody is, or the name is rejected
	Via      string
	Standbys []Member // the next in rank, where the adapter is registered too
	Rejected bool     // the name is in no list, and such names get 404
}

// Chosen is the replica for one request. Over: it is over the bound, and nobody was under it.
type Chosen struct {
	Member Member
	Via    string
	Over   bool
}

// InFlight counts a router's open requests: by slot on the ring, by replica name in hot and cold groups.
type InFlight func(key string) int64

// Key is what InFlight is asked for.
func (m Member) Key() string {
	if m.Slot != "" {
		return m.Slot
	}
	return m.Replica
}

// Ring is a snapshot made ready for look-ups. It never changes, so any number of goroutines may ask it.
type Ring struct {
	*Snapshot
	ranked []Member // active and vacant, ascending by slot
	hashes []uint64
	bySlot map[string]Member
	active []Member
	warm   map[string]bool
	base   map[string]bool
	owned  map[string][]string // tenant -> its adapters, where it has several
}

// New makes a ring of a snapshot: one for each epoch.
func New(snapshot *Snapshot) *Ring {
	r := &Ring{Snapshot: snapshot, bySlot: map[string]Member{}, warm: set(snapshot.Warm), base: set(snapshot.BaseModels)}
	for _, member := range snapshot.Members {
		if member.State != Draining {
			r.ranked = append(r.ranked, member)
			r.bySlot[member.Slot] = member
		}
	}
	r.active = active(snapshot.Members)
	if snapshot.Fairness != nil {
		r.owned = map[string][]string{}
		for adapter, tenant := range snapshot.Fairness.Tenants {
			r.owned[tenant] = append(r.owned[tenant], adapter)
		}
	}
	slices.SortFunc(r.ranked, func(a, b Member) int { return cmp.Compare(a.Slot, b.Slot) })
	for _, member := range r.ranked {
		r.hashes = append(r.hashes, H(member.Slot))
	}
	return r
}

// Ranked is the active and vacant members by their score for adapter, highest first; equal scores by slot.
func (r *Ring) Ranked(adapter string) []Member {
	type scored struct {
		score uint64
		row   int
	}
	h := H(adapter)
	order := make([]scored, len(r.ranked))
	for i, slot := range r.hashes {
		order[i] = scored{Mix(h ^ slot), i}
	}
	slices.SortFunc(order, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.row, b.row))
	})
	found := make([]Member, len(order))
	for i, item := range order {
		found[i] = r.ranked[item.row]
	}
	return found
}

// Owners of a name by rules 1 to 6 of docs/ring.md. skipHot leaves out rule 1: its dedicated group is down or full.
func (r *Ring) Owners(adapter string, skipHot bool) Owners {
	if !skipHot {
		if members := active(r.Hot[adapter]); len(members) > 0 {
			return Owners{Members: members, Via: ViaHot}
		}
	}
	listed, excepted := r.Exceptions[adapter]
	if r.HasWarm && !r.warm[adapter] && !excepted {
		return r.offRing(adapter)
	}
	ranked := r.Ranked(adapter)
	via, holders := ViaHash, ranked[:min(r.ReplicationFactor, len(ranked))]
	if excepted {
		via, holders = ViaException, nil
		for _, slot := range listed {
			if member, there := r.bySlot[slot]; there {
				holders = append(holders, member)
			}
		}
	}
	members := active(holders)
	if len(members) == 0 {
		via = ViaFallback
		if serving := active(ranked); len(serving) > 0 {
			members = serving[:1]
		}
	}
	owners := Owners{Members: members, Via: via}
	if r.Overflow == "standbys" {
		others := without(active(ranked), members)
		owners.Standbys = others[:min(r.StandbyCount, len(others))]
	}
	return owners
}

func (r *Ring) offRing(adapter string) Owners {
	if r.base[adapter] {
		return Owners{Members: r.active, Via: ViaBase}
	}
	if _, hot := r.Hot[adapter]; r.RejectUnknown && !hot {
		return Owners{Via: ViaCold, Rejected: true}
	}
	if r.HasCold {
		return Owners{Members: active(r.Cold), Via: ViaCold}
	}
	return Owners{Members: r.active, Via: ViaCold}
}

// Choose is the replica for one more request, exactly as the snapshot says; false where nobody may serve.
//
// Only members that allowed accepts are considered where it is not nil: a gateway that offers a subset of endpoints.
func (r *Ring) Choose(adapter string, inFlight InFlight, skipHot bool, allowed func(Member) bool) (Chosen, bool) {
	owners := r.Owners(adapter, skipHot)
	overflow := owners.Standbys
	if onRing(owners.Via) && r.Overflow == "any" {
		overflow = without(active(r.Ranked(adapter)), owners.Members)
	}
	if allowed != nil {
		owners.Members, overflow = keep(owners.Members, allowed), keep(overflow, allowed)
	}
	if len(owners.Members) == 0 {
		return r.instead(owners, overflow, inFlight, allowed)
	}
	least := slices.Clone(owners.Members)
	slices.SortStableFunc(least, func(a, b Member) int { return cmp.Compare(inFlight(a.Key()), inFlight(b.Key())) })
	if !onRing(owners.Via) {
		return Chosen{Member: least[0], Via: owners.Via}, true
	}
	limit := r.RequestLimit(inFlight)
	if r.Choice == "least" {
		return Chosen{least[0], owners.Via, inFlight(least[0].Key())+1 > limit}, true
	}
	first := owners.Members[0]
	order := append([]Member{first}, without(least, []Member{first})...)
	for _, member := range append(order, overflow...) {
		if inFlight(member.Key())+1 <= limit {
			return Chosen{Member: member, Via: owners.Via}, true
		}
	}
	return Chosen{least[0], owners.Via, true}, true
}

// instead is for a subset without any owner: a standby in it has the adapter; failing that, nobody may serve.
func (r *Ring) instead(owners Owners, overflow []Member, inFlight InFlight, allowed func(Member) bool) (Chosen, bool) {
	if allowed == nil || len(overflow) == 0 {
		return Chosen{}, false
	}
	member := overflow[0]
	return Chosen{member, owners.Via, inFlight(member.Key())+1 > r.RequestLimit(inFlight)}, true
}

// RefusedMs is when a request beyond its tenant's bound may come again, for a 429's Retry-After; false: it may pass.
//
// inFlight counts this router's requests by adapter. A dedicated group that serves shares nothing, and is not bounded.
func (r *Ring) RefusedMs(adapter string, inFlight InFlight) (int64, bool) {
	if r.Fairness == nil || len(active(r.Hot[adapter])) > 0 {
		return 0, false
	}
	fellows := []string{adapter}
	if tenant, there := r.Fairness.Tenants[adapter]; there {
		fellows = r.owned[tenant]
	}
	taken := int64(0)
	for _, fellow := range fellows {
		taken += inFlight(fellow)
	}
	return r.Fairness.RetryAfterMs, taken >= r.Fairness.MaxInFlight
}

// RequestLimit is the most requests in flight on one slot, the next one included, before it is over the bound.
func (r *Ring) RequestLimit(inFlight InFlight) int64 {
	total := int64(1)
	for _, member := range r.active {
		total += inFlight(member.Slot)
	}
	members := 100 * int64(max(len(r.active), 1))
	return max(r.RequestFloor, (r.RequestBoundPercent*total+members-1)/members)
}

func onRing(via string) bool { return via == ViaException || via == ViaHash || via == ViaFallback }

func active(members []Member) []Member {
	return keep(members, func(m Member) bool { return m.State == Active })
}

func keep(members []Member, wanted func(Member) bool) []Member {
	var found []Member
	for _, member := range members {
		if wanted(member) {
			found = append(found, member)
		}
	}
	return found
}

func without(members, taken []Member) []Member {
	return keep(members, func(m Member) bool { return !slices.Contains(taken, m) })
}

func set(names []string) map[string]bool {
	found := make(map[string]bool, len(names))
	for _, name := range names {
		found[name] = true
	}
	return found
}

// Package ring reads the ring of a lora-autoscaler fleet and says which replica serves an adapter.
//
// It follows docs/ring.md to the letter ("exact" conformance) and is checked by the same golden vectors as the Python
// client. It needs nothing but the standard library.
package ring

import (
	"fmt"
	"regexp"
	"strings"
)

const (
	// MediaType of a snapshot.
	MediaType = "application/vnd.lora-autoscaler.ring.v1+json"
	// Version that this package reads.
	Version = 1
	// MaxBytes is the longest snapshot that is read.
	MaxBytes = 64 << 20
	// MaxIDBytes is the longest id, name or address.
	MaxIDBytes = 1024
)

// RefusedError says why a snapshot must not be used. Code is the word that the golden vectors use.
type RefusedError struct {
	Code    string
	Message string
}

func (e *RefusedError) Error() string { return e.Code + ": " + e.Message }

func refuse(code, format string, values ...any) error {
	return &RefusedError{code, fmt.Sprintf(format, values...)}
}

// State of a member.
type State string

// What a member takes part in: active serves, vacant is ranked and waits for its replica, draining leaves.
const (
	Active   State = "active"
	Vacant   State = "vacant"
	Draining State = "draining"
)

// Member is a replica in a group. Slot is empty in hot and cold groups; a vacant slot has no replica.
type Member struct {
	Slot, Replica, Address string
	State                  State
}

// Snapshot is everything that a router needs, at one epoch. Make it with Decode.
type Snapshot struct {
	Fleet               string
	Epoch               int64
	PublishedAt         string
	ReplicationFactor   int
	Choice              string // preferred, least
	RequestBoundPercent int64
	RequestFloor        int64
	Overflow            string // owners, standbys, any
	StandbyCount        int
	Members             []Member
	Exceptions          map[string][]string
	Hot                 map[string][]Member
	Cold                []Member // meaningful where HasCold
	HasCold             bool
	Warm                []string // meaningful where HasWarm
	HasWarm             bool     // false: every name is on the ring
	BaseModels          []string
	RejectUnknown       bool
	Fairness            *Fairness // nil: tenants are not bounded
}

// Fairness bounds each tenant: what is beyond it gets 429, so that its neighbours get their answers.
type Fairness struct {
	MaxInFlight  int64             // requests that one tenant may have in flight through one router
	RetryAfterMs int64             // when one that was refused may ask again
	Tenants      map[string]string // adapter -> tenant, of tenants of several adapters; others are tenants by themselves
}

var instant = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$`)

// Decode reads a snapshot, whole or not at all. The error is a *RefusedError.
func Decode(body []byte) (*Snapshot, error) {
	if len(body) > MaxBytes {
		return nil, refuse("too-long", "the snapshot is %d bytes long, more than %d", len(body), MaxBytes)
	}
	value, surrogate, err := parse(body)
	if err != nil {
		return nil, err
	}
	document, ok := value.(map[string]any)
	if !ok {
		return nil, refuse("wrong-type", "the snapshot is not a JSON object")
	}
	if version := document["version"]; version != any(int64(Version)) {
		return nil, refuse("unknown-version", "snapshot version %v is unknown; this reads %d", version, Version)
	}
	if name := document["hash"]; name != any(HashName) {
		return nil, refuse("unknown-hash", "snapshot hash %v is unknown; this reads %s", name, HashName)
	}
	if surrogate {
		return nil, refuse("wrong-type", "the snapshot has half a surrogate pair")
	}
	if found, right := document["digest"], digest(document); found != any(right) {
		return nil, refuse("wrong-digest", "snapshot digest %v does not match its content, which has %s", found, right)
	}
	fields := &fields{}
	snapshot := fields.snapshot(document)
	if fields.err != nil {
		return nil, fields.err
	}
	return snapshot, nil
}

// Newest is the snapshot to use from now on: a client never goes back to a lower epoch.
func Newest(current, offered *Snapshot) (*Snapshot, error) {
	if current == nil || offered.Epoch > current.Epoch {
		return offered, nil
	}
	if offered.Epoch < current.Epoch {
		return current, refuse("lower-epoch", "epoch %d is below epoch %d, which stays in use", offered.Epoch, current.Epoch)
	}
	return current, nil
}

func digest(document map[string]any) string {
	rest := make(map[string]any, len(document))
	for key, value := range document {
		if key != "digest" {
			rest[key] = value
		}
	}
	var out strings.Builder
	canonical(&out, rest)
	return fmt.Sprintf("%016x", H(out.String()))
}

// fields reads a document field by field; the first thing that is wrong is kept, and ends nothing.
type fields struct{ err error }

func (f *fields) wrong(code, format string, values ...any) {
	if f.err == nil {
		f.err = refuse(code, format, values...)
	}
}

func (f *fields) wrongType(where string, value any, wanted string) {
	if value == nil {
		f.wrong("missing-field", "the snapshot has no %s; it must be %s", where, wanted)
		return
	}
	f.wrong("wrong-type", "%s is %.40v; it must be %s", where, value, wanted)
}

func (f *fields) snapshot(d map[string]any) *Snapshot {
	s := &Snapshot{Exceptions: map[string][]string{}, Hot: map[string][]Member{}}
	s.Members = f.members(d["members"], "members", true)
	slots := map[string]bool{}
	for _, member := range s.Members {
		if slots[member.Slot] {
			f.wrong("duplicate-key", "the snapshot lists the slot %q twice in members", member.Slot)
		}
		slots[member.Slot] = true
	}
	if s.PublishedAt = f.text(d["published_at"], "published_at", false); !instant.MatchString(s.PublishedAt) {
		f.wrong("wrong-type", "published_at is %q, not a time such as 2026-11-29T12:00:00Z", s.PublishedAt)
	}
	s.Fleet = f.text(d["fleet"], "fleet", false)
	s.Epoch = f.number(d, "epoch", "", 0)
	s.ReplicationFactor = int(f.number(d, "replication_factor", "", 1))
	s.Choice = f.word(d["choice"], "choice", "preferred", "least")
	s.RequestBoundPercent = f.number(d, "request_bound_percent", "", 100)
	s.RequestFloor = f.number(d, "request_floor", "", 0)
	s.Overflow = f.word(d["overflow"], "overflow", "owners", "standbys", "any")
	s.StandbyCount = int(f.number(d, "standby_count", "", 0))
	for adapter, listed := range f.object(d["exceptions"], "exceptions", has(d, "exceptions")) {
		s.Exceptions[f.text(adapter, "exceptions", false)] = f.texts(listed, "exceptions["+adapter+"]")
	}
	for adapter, group := range f.object(d["hot"], "hot", has(d, "hot")) {
		where := "hot[" + adapter + "]"
		item := f.object(group, where, true)
		f.text(item["group"], where+".group", false)
		s.Hot[f.text(adapter, "hot", false)] = f.members(item["members"], where+".members", false)
	}
	if cold := d["cold"]; cold != nil {
		s.HasCold = true
		s.Cold = f.members(f.object(cold, "cold", true)["members"], "cold.members", false)
	}
	if warm := d["warm"]; warm != nil {
		s.HasWarm, s.Warm = true, f.texts(warm, "warm")
	}
	if has(d, "base_models") {
		s.BaseModels = f.texts(d["base_models"], "base_models")
	}
	if has(d, "unknown") {
		s.RejectUnknown = f.word(d["unknown"], "unknown", "cold", "reject") == "reject"
	}
	if told := d["fairness"]; told != nil {
		s.Fairness = f.fairness(f.object(told, "fairness", true))
	}
	return s
}

func (f *fields) fairness(d map[string]any) *Fairness {
	const where = "fairness."
	told := &Fairness{f.number(d, "max_in_flight", where, 1), f.number(d, "retry_after_ms", where, 0), map[string]string{}}
	for adapter, tenant := range f.object(d["tenants"], where+"tenants", has(d, "tenants")) {
		told.Tenants[f.text(adapter, where+"tenants", false)] = f.text(tenant, where+"tenants["+adapter+"]", false)
	}
	return told
}

func has(d map[string]any, name string) bool {
	_, there := d[name]
	return there
}

func (f *fields) object(value any, where string, must bool) map[string]any {
	found, ok := value.(map[string]any)
	if !ok && must {
		f.wrongType(where, value, "an object")
	}
	return found
}

func (f *fields) members(value any, where string, slot bool) []Member {
	items, ok := value.([]any)
	if !ok {
		f.wrongType(where, value, "a list")
	}
	found := make([]Member, 0, len(items))
	for i, item := range items {
		at := fmt.Sprintf("%s[%d]", where, i)
		member := f.object(item, at, true)
		state := State(f.word(member["state"], at+".state", string(Active), string(Vacant), string(Draining)))
		read := Member{State: state}
		read.Replica = f.text(member["replica"], at+".replica", state != Active)
		read.Address = f.text(member["address"], at+".address", state != Active)
		if slot {
			read.Slot = f.text(member["slot"], at+".slot", false)
		}
		found = append(found, read)
	}
	return found
}

func (f *fields) texts(value any, where string) []string {
	items, ok := value.([]any)
	if !ok {
		f.wrongType(where, value, "a list")
	}
	found, seen := make([]string, 0, len(items)), make(map[string]bool, len(items))
	for _, item := range items {
		text := f.text(item, where, false)
		if seen[text] {
			f.wrong("duplicate-key", "the snapshot lists %q twice in %s", text, where)
		}
		seen[text] = true
		found = append(found, text)
	}
	return found
}

func (f *fields) text(value any, where string, mayBeEmpty bool) string {
	text, ok := value.(string)
	switch {
	case !ok:
		f.wrongType(where, value, "a string")
	case text == "" && !mayBeEmpty:
		f.wrong("out-of-range", "%s is empty", where)
	case len(text) > MaxIDBytes:
		f.wrong("too-long", "%s is longer than %d bytes", where, MaxIDBytes)
	}
	return text
}

func (f *fields) number(d map[string]any, name, where string, atLeast int64) int64 {
	value, ok := d[name].(int64)
	if !ok {
		f.wrongType(where+name, d[name], "an integer")
	} else if value < atLeast {
		f.wrong("out-of-range", "%s%s is %d; it must be %d or more", where, name, value, atLeast)
	}
	return value
}

func (f *fields) word(value any, where string, allowed ...string) string {
	for _, word := range allowed {
		if value == any(word) {
			return word
		}
	}
	f.wrong("wrong-type", "%s is %.40v; it must be one of %s", where, value, strings.Join(allowed, ", "))
	return ""
}

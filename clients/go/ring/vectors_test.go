package ring

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

type vectors struct {
	H      []struct{ Text, H string }
	Mix    []struct{ Z, Mix string }
	Scores []struct{ Adapter, Slot, Score string }

	Rankings []struct {
		Adapter string
		Slots   []string
		Ranked  []string
	}
	Snapshots []struct {
		Name     string
		Snapshot json.RawMessage
		Owners   []struct {
			Adapter  string
			Owners   []string
			Via      string
			Standbys []string
			Rejected bool
		}
	}
	Choices []struct {
		Snapshot string
		Adapter  string
		InFlight map[string]int64 `json:"in_flight"`
		SkipHot  bool             `json:"skip_hot"`
		Chosen   *string
		Over     bool
	}
	Bounds []struct {
		Snapshot, Adapter string
		InFlight          map[string]int64 `json:"in_flight"`
		RetryAfterMs      *int64           `json:"retry_after_ms"`
	}
	Refused []struct {
		Name, Code, Repeat string
		Body               *string
		Times              int
	}
	Epochs []struct {
		Current  *int64
		Offered  int64
		Accepted bool
	}
}

func load(t *testing.T) vectors {
	t.Helper()
	text, err := os.ReadFile("../../../autoscaler/ring/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var found vectors
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

func rings(t *testing.T, v vectors) map[string]*Ring {
	t.Helper()
	found := map[string]*Ring{}
	for _, item := range v.Snapshots {
		snapshot, err := Decode(item.Snapshot)
		if err != nil {
			t.Fatalf("%s: %v", item.Name, err)
		}
		found[item.Name] = New(snapshot)
	}
	return found
}

func TestHashesAndScoresAreThoseOfTheGoldenVectors(t *testing.T) {
	v := load(t)
	for _, vector := range v.H {
		if got := fmt.Sprintf("%016x", H(vector.Text)); got != vector.H {
			t.Errorf("h(%q) = %s, not %s", vector.Text, got, vector.H)
		}
	}
	for _, vector := range v.Mix {
		var z uint64
		fmt.Sscanf(vector.Z, "%x", &z)
		if got := fmt.Sprintf("%016x", Mix(z)); got != vector.Mix {
			t.Errorf("mix(%s) = %s, not %s", vector.Z, got, vector.Mix)
		}
	}
	for _, vector := range v.Scores {
		if got := fmt.Sprintf("%016x", Score(vector.Adapter, vector.Slot)); got != vector.Score {
			t.Errorf("score(%q, %q) = %s, not %s", vector.Adapter, vector.Slot, got, vector.Score)
		}
	}
	for _, vector := range v.Rankings {
		snapshot := &Snapshot{}
		for _, slot := range vector.Slots {
			snapshot.Members = append(snapshot.Members, Member{Slot: slot, State: Active})
		}
		if got := slots(New(snapshot).Ranked(vector.Adapter)); !slices.Equal(got, vector.Ranked) {
			t.Errorf("ranked(%q) = %v, not %v", vector.Adapter, got, vector.Ranked)
		}
	}
}

func TestOwnersOfEveryRule(t *testing.T) {
	v := load(t)
	ready := rings(t, v)
	for _, item := range v.Snapshots {
		for _, want := range item.Owners {
			got := ready[item.Name].Owners(want.Adapter, false)
			names := slots(got.Members)
			if !onRing(got.Via) {
				names = names[:0]
				for _, member := range got.Members {
					names = append(names, member.Replica)
				}
			}
			same := slices.Equal(names, want.Owners) && got.Via == want.Via && got.Rejected == want.Rejected
			if !same || !slices.Equal(slots(got.Standbys), want.Standbys) {
				t.Errorf("%s %q: %+v, wanted %+v", item.Name, want.Adapter, got, want)
			}
		}
	}
}

func TestChoicesAtRequestTime(t *testing.T) {
	v := load(t)
	ready := rings(t, v)
	for _, want := range v.Choices {
		counts := func(key string) int64 { return want.InFlight[key] }
		got, ok := ready[want.Snapshot].Choose(want.Adapter, counts, want.SkipHot, nil)
		if ok != (want.Chosen != nil) || (ok && (got.Member.Replica != *want.Chosen || got.Over != want.Over)) {
			t.Errorf("%+v: chose %+v, %v", want, got, ok)
		}
	}
}

func TestTheBoundOnATenant(t *testing.T) {
	v := load(t)
	ready := rings(t, v)
	for _, want := range v.Bounds {
		got, refused := ready[want.Snapshot].RefusedMs(want.Adapter, func(key string) int64 { return want.InFlight[key] })
		if refused != (want.RetryAfterMs != nil) || (refused && got != *want.RetryAfterMs) {
			t.Errorf("%+v: %d, %v", want, got, refused)
		}
	}
}

func TestWhatMustBeRefusedIsRefusedForItsReason(t *testing.T) {
	for _, vector := range load(t).Refused {
		body := strings.Repeat(vector.Repeat, vector.Times)
		if vector.Body != nil {
			body = *vector.Body
		}
		_, err := Decode([]byte(body))
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Code != vector.Code {
			t.Errorf("%s: %v, wanted %s", vector.Name, err, vector.Code)
		}
	}
}

func TestAClientNeverGoesBackToALowerEpoch(t *testing.T) {
	for _, vector := range load(t).Epochs {
		var current *Snapshot
		if vector.Current != nil {
			current = &Snapshot{Epoch: *vector.Current}
		}
		used, err := Newest(current, &Snapshot{Epoch: vector.Offered})
		if accepted := err == nil; accepted != vector.Accepted {
			t.Errorf("%+v: %v", vector, err)
		}
		if !vector.Accepted && used != current {
			t.Errorf("%+v: the current snapshot does not stay in use", vector)
		}
	}
}

func TestASubsetWithoutAnOwnerIsServedByAStandbyAndOtherwiseByNobody(t *testing.T) {
	ready := rings(t, load(t))["choice-preferred-standbys"]
	none := func(string) int64 { return 0 }
	owners := ready.Owners("adapter-17", false)
	standby := owners.Standbys[0]
	got, ok := ready.Choose("adapter-17", none, false, func(m Member) bool { return m == standby })
	if !ok || got.Member != standby {
		t.Errorf("chose %+v, not the standby %+v", got, standby)
	}
	if got, ok := ready.Choose("adapter-17", none, false, func(m Member) bool { return false }); ok {
		t.Errorf("chose %+v from an empty subset", got)
	}
}

func FuzzDecodeNeverPanicsAndWhatItTakesIsWhole(f *testing.F) {
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":1,"hash":"hrw-xxh64-sm64-v1","digest":"\ud800"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		snapshot, err := Decode(body)
		if (snapshot == nil) == (err == nil) {
			t.Fatalf("%v %v", snapshot, err)
		}
	})
}

func slots(members []Member) []string {
	found := []string{}
	for _, member := range members {
		found = append(found, member.Slot)
	}
	return found
}

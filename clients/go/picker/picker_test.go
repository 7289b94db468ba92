package main

import (
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"lora-autoscaler/clients/go/ring"
)

func hinted(t *testing.T, value any) *core.Metadata {
	t.Helper()
	fields, err := structpb.NewStruct(map[string]any{subset: value})
	if err != nil {
		t.Fatal(err)
	}
	return &core.Metadata{FilterMetadata: map[string]*structpb.Struct{subsetSpace: fields}}
}

func TestCandidatesAreAListOrATextAndNoHintMeansAll(t *testing.T) {
	if offered(nil) != nil {
		t.Error("without a hint all are allowed")
	}
	one, other := ring.Member{Address: "10.0.0.1:8000"}, ring.Member{Address: "10.0.0.2:8000"}
	for _, value := range []any{[]any{"10.0.0.1:8000", "10.0.0.9:8000"}, "10.0.0.1:8000, 10.0.0.9:8000"} {
		if allowed := offered(hinted(t, value)); !allowed(one) || allowed(other) {
			t.Errorf("%v allows the wrong ones", value)
		}
	}
	for _, nobody := range []any{[]any{}, "", 7.0} {
		if allowed := offered(hinted(t, nobody)); allowed(one) {
			t.Errorf("%v allows somebody", nobody)
		}
	}
}

func TestTheModelIsExactlyThatKeyAndTheLastOfTwo(t *testing.T) {
	for body, want := range map[string]string{
		`{"model": "a"}`: "a", `{"Model": "b", "model": "a"}`: "a", `{"model": "b", "model": "a"}`: "a",
	} {
		if got, err := modelOf([]byte(body)); got != want || err != nil {
			t.Errorf("%s: %q, %v", body, got, err)
		}
	}
	for _, body := range []string{"", "[]", "null", "{}", `{"MODEL": "a"}`, `{"model": 7}`, `{"model": ""}`, `{"model": null}`} {
		if got, err := modelOf([]byte(body)); err == nil {
			t.Errorf("%s: %q", body, got)
		}
	}
}

func TestCountsFallToNothing(t *testing.T) {
	members := []ring.Member{{Slot: "s0000", Replica: "r0", Address: "10.0.0.1:8000", State: ring.Active}}
	current := ring.New(&ring.Snapshot{Members: members, ReplicationFactor: 1, Choice: "preferred", RequestFloor: 4})
	p := newPicker(func() *ring.Ring { return current }, 1)
	for range 3 {
		if member, refused := p.take("a", nil); refused != nil || member.Replica != "r0" {
			t.Fatal(member, refused)
		}
	}
	if p.inFlight["s0000"] != 3 {
		t.Fatalf("%v", p.inFlight)
	}
	for range 3 {
		p.release("s0000", "a")
	}
	if len(p.inFlight) != 0 || len(p.asked) != 0 {
		t.Fatalf("%v %v", p.inFlight, p.asked)
	}
}

func TestATenantBeyondItsBoundIsRefusedAndItsNeighbourIsNot(t *testing.T) {
	members := []ring.Member{{Slot: "s0000", Replica: "r0", Address: "10.0.0.1:8000", State: ring.Active}}
	bound := &ring.Fairness{MaxInFlight: 2, RetryAfterMs: 1200, Tenants: map[string]string{"a": "acme", "b": "acme"}}
	current := ring.New(&ring.Snapshot{
		Members: members, ReplicationFactor: 1, Choice: "preferred", RequestFloor: 4, Fairness: bound,
	})
	p := newPicker(func() *ring.Ring { return current }, 1)
	for _, model := range []string{"a", "b", "c", "c"} {
		if _, refused := p.take(model, nil); refused != nil {
			t.Fatal(model, refused)
		}
	}
	for _, model := range []string{"a", "b", "c"} {
		if _, refused := p.take(model, nil); refused == nil || refused.code != 429 || refused.retryAfter != 2 {
			t.Fatal(model, refused)
		}
	}
	p.release("s0000", "b")
	if _, refused := p.take("a", nil); refused != nil {
		t.Fatal(refused)
	}
}

func TestWithoutARingNobodyServes(t *testing.T) {
	p := newPicker(func() *ring.Ring { return nil }, 1)
	if _, refused := p.take("a", nil); refused == nil || refused.code != 503 {
		t.Fatal(refused)
	}
}

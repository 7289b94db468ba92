package ring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// controller answers with what a test puts there, and waits for news as the real one does.
type controller struct {
	mutex sync.Mutex
	news  chan struct{}
	body  []byte
	down  bool
	acks  chan int64
	auth  string
}

func newController(t *testing.T) (*controller, *httptest.Server) {
	c := &controller{news: make(chan struct{}), acks: make(chan int64, 100)}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return c, server
}

func (c *controller) put(body []byte, down bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.body, c.down = body, down
	close(c.news)
	c.news = make(chan struct{})
}

func (c *controller) now() ([]byte, bool, chan struct{}) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.body, c.down, c.news
}

func (c *controller) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	c.mutex.Lock()
	c.auth = in.Header.Get("Authorization")
	c.mutex.Unlock()
	if in.Method == http.MethodPost {
		var ack struct{ Epoch int64 }
		json.NewDecoder(in.Body).Decode(&ack)
		c.acks <- ack.Epoch
		out.WriteHeader(http.StatusNoContent)
		return
	}
	for {
		body, down, news := c.now()
		if down {
			http.Error(out, "down", http.StatusServiceUnavailable)
			return
		}
		var offered struct{ Epoch int64 }
		json.Unmarshal(body, &offered)
		if known := in.Header.Get("If-None-Match"); body != nil && known != fmt.Sprintf("%q", fmt.Sprint(offered.Epoch)) {
			out.Write(body)
			return
		}
		select {
		case <-news:
		case <-in.Context().Done():
			return
		}
	}
}

func snapshotAt(t *testing.T, epoch int64, changes map[string]any) []byte {
	t.Helper()
	document := map[string]any{
		"version": int64(1), "hash": HashName, "fleet": "f", "epoch": epoch, "published_at": "2026-11-29T12:00:00Z",
		"replication_factor": int64(1), "choice": "preferred", "request_bound_percent": int64(125), "request_floor": int64(4),
		"overflow": "owners", "standby_count": int64(0), "members": []any{
			map[string]any{"slot": "s0000", "replica": "r0", "address": "127.0.0.1:1", "state": "active"},
		},
	}
	for name, value := range changes {
		document[name] = value
	}
	document["digest"] = digest(document)
	var out strings.Builder
	canonical(&out, document)
	return []byte(out.String())
}

type running struct {
	*Client
	told chan error
}

func run(t *testing.T, url, file string) running {
	t.Helper()
	told := make(chan error, 100)
	client := &Client{
		URL: url + "/ring", Router: "r", File: file, Token: func() (string, error) { return "secret", nil },
		Told: func(err error) {
			select {
			case told <- err:
			default:
			}
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { client.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return running{client, told}
}

func (r running) refusal(t *testing.T) *RefusedError {
	t.Helper()
	for err := range r.told {
		var refused *RefusedError
		if errors.As(err, &refused) {
			return refused
		}
	}
	return nil
}

func TestAClientFollowsAcknowledgesAndKeepsTheRing(t *testing.T) {
	source, server := newController(t)
	file := filepath.Join(t.TempDir(), "ring.json")
	client := run(t, server.URL, file)
	source.put(snapshotAt(t, 1, nil), false)
	if got := <-source.acks; got != 1 {
		t.Fatalf("acknowledged %d, not 1", got)
	}
	source.put(snapshotAt(t, 2, nil), false)
	if got := <-source.acks; got != 2 || client.Current().Epoch != 2 {
		t.Fatalf("acknowledged %d, applies %d", got, client.Current().Epoch)
	}
	if kept, err := os.ReadFile(file); err != nil || string(kept) != string(snapshotAt(t, 2, nil)) {
		t.Fatalf("kept %q, %v", kept, err)
	}
	if source.auth != "Bearer secret" {
		t.Fatalf("authorized by %q", source.auth)
	}
}

func TestALowerEpochAnUnknownVersionAndAWrongDigestLeaveTheRingInUse(t *testing.T) {
	tampered := []byte(strings.Replace(string(snapshotAt(t, 9, nil)), `"r0"`, `"r9"`, 1))
	for _, offered := range []struct {
		body []byte
		code string
	}{
		{snapshotAt(t, 6, nil), "lower-epoch"},
		{snapshotAt(t, 9, map[string]any{"version": int64(2)}), "unknown-version"},
		{tampered, "wrong-digest"},
	} {
		source, server := newController(t)
		client := run(t, server.URL, "")
		source.put(snapshotAt(t, 7, nil), false)
		<-source.acks
		source.put(offered.body, false)
		if got := client.refusal(t); got.Code != offered.code || client.Current().Epoch != 7 {
			t.Errorf("%v, at epoch %d; wanted %s", got, client.Current().Epoch, offered.code)
		}
		source.put(snapshotAt(t, 8, nil), false)
		for got := range source.acks {
			if got == 8 {
				break
			}
		}
	}
}

func TestAControllerThatIsAwayChangesNothingAndARestartGoesOnFromTheFile(t *testing.T) {
	source, server := newController(t)
	file := filepath.Join(t.TempDir(), "ring.json")
	client := run(t, server.URL, file)
	source.put(snapshotAt(t, 7, nil), false)
	<-source.acks
	source.put(nil, true)
	if err := <-client.told; client.Current().Epoch != 7 {
		t.Fatalf("at epoch %d after %v", client.Current().Epoch, err)
	}
	again := run(t, server.URL, file)
	<-again.told
	if ring := again.Current(); ring == nil || ring.Epoch != 7 {
		t.Fatalf("restarted with %v", ring)
	}
}

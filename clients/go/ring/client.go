package ring

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	wait      = 30 * time.Second
	giveUp    = wait + 15*time.Second
	firstBack = 500 * time.Millisecond
	longBack  = 15 * time.Second
)

// Client follows one fleet's ring over HTTP: long poll, acknowledgement, and the last good snapshot while the controller
// is away. What must not be trusted (docs/ring.md) is refused, and the ring in use stays.
type Client struct {
	// URL of the ring: https://controller/v1/fleets/FLEET/ring.
	URL string
	// Token is called for each request, so that a rotated token is picked up. nil: no credential.
	Token func() (string, error)
	// Router is this router's name in acknowledgements; empty: none are sent, and drains wait for the time-out.
	Router string
	// File keeps the last good snapshot over restarts; empty: none is kept.
	File string
	// HTTP is the client to use; nil: one of its own that follows no redirect.
	HTTP *http.Client
	// Told is called with each refusal and failure; nil: nobody is.
	Told func(error)

	current atomic.Pointer[Ring]
}

// Current is the ring in use, nil before the first.
func (c *Client) Current() *Ring { return c.current.Load() }

// Run follows the ring until ctx ends. It starts from File where that holds a good snapshot.
func (c *Client) Run(ctx context.Context) {
	if c.HTTP == nil {
		// A redirect would carry the credential to a host that nobody configured.
		c.HTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if body, err := os.ReadFile(c.File); c.File != "" && err == nil {
		if _, err := c.use(body); err != nil {
			c.tell(fmt.Errorf("%s is not used: %w", c.File, err))
		}
	}
	back := firstBack
	for ctx.Err() == nil {
		err := c.follow(ctx)
		if err == nil {
			back = firstBack
			continue
		}
		if ctx.Err() != nil {
			return
		}
		c.tell(err)
		select {
		case <-ctx.Done():
		case <-time.After(back):
		}
		back = min(2*back, longBack)
	}
}

// follow asks once, for as long as there is nothing new, and says what is applied.
func (c *Client) follow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, giveUp)
	defer cancel()
	known := int64(-1)
	if ring := c.Current(); ring != nil {
		known = ring.Epoch
	}
	answer, err := c.call(ctx, http.MethodGet, c.URL+"?wait_s="+strconv.Itoa(int(wait.Seconds())), known, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusNotModified:
	case http.StatusOK:
		body, err := io.ReadAll(io.LimitReader(answer.Body, MaxBytes+1))
		if err != nil {
			return err
		}
		news, err := c.use(body)
		if err != nil {
			return err
		}
		if news {
			c.keep(body)
		} else {
			// Somebody answers at once with what is known: do not ask in a tight loop.
			return errors.New("the ring was sent again although it is known")
		}
	default:
		return fmt.Errorf("%s answers %s", c.URL, answer.Status)
	}
	return c.acknowledge(ctx)
}

// use takes a snapshot into use; false where it is the one that is.
func (c *Client) use(body []byte) (bool, error) {
	offered, err := Decode(body)
	if err != nil {
		return false, err
	}
	var current *Snapshot
	if ring := c.Current(); ring != nil {
		current = ring.Snapshot
	}
	newest, err := Newest(current, offered)
	if err != nil || newest == current {
		return false, err
	}
	c.current.Store(New(newest))
	return true, nil
}

func (c *Client) acknowledge(ctx context.Context) error {
	ring := c.Current()
	if c.Router == "" || ring == nil {
		return nil
	}
	body, err := json.Marshal(map[string]any{"router": c.Router, "epoch": ring.Epoch})
	if err != nil {
		return err
	}
	answer, err := c.call(ctx, http.MethodPost, strings.TrimSuffix(c.URL, "/")+"/acks", -1, body)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("the acknowledgement of epoch %d is answered %s", ring.Epoch, answer.Status)
	}
	return nil
}

func (c *Client) call(ctx context.Context, method, url string, known int64, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", MediaType)
	if known >= 0 {
		request.Header.Set("If-None-Match", strconv.Quote(strconv.FormatInt(known, 10)))
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.Token != nil {
		token, err := c.Token()
		if err != nil {
			return nil, fmt.Errorf("no credential: %w", err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return c.HTTP.Do(request)
}

// keep renames a whole file into place, so that a reader sees the old snapshot or the new one.
func (c *Client) keep(body []byte) {
	if c.File == "" {
		return
	}
	err := func() error {
		partial, err := os.CreateTemp(filepath.Dir(c.File), filepath.Base(c.File)+".*")
		if err != nil {
			return err
		}
		_, err = partial.Write(body)
		if err = errors.Join(err, partial.Sync(), partial.Close()); err == nil {
			err = os.Rename(partial.Name(), c.File)
		}
		if err != nil {
			os.Remove(partial.Name())
		}
		return err
	}()
	if err != nil {
		c.tell(fmt.Errorf("the snapshot is used, and not kept: %w", err))
	}
}

func (c *Client) tell(err error) {
	if c.Told != nil {
		c.Told(err)
	}
}

package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// roomFor is a connection with room for one job.
type roomFor struct{ Users }

// Close implements [Connection].
func (*roomFor) Close() {}

type testJob struct {
	Job
	name string
}

// Jobs for which a connection has no room are published on the one that replaces it. Without a
// connection each job that is left gets the error.
func TestPublishAll(t *testing.T) {
	t.Parallel()
	dialed := 0
	c := NewConnections(1, Server{Kind: "test", Address: "here:1"}, slog.New(slog.DiscardHandler), func(context.Context) (*roomFor, error) {
		dialed++
		return &roomFor{}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	jobs := []testJob{{Job{2}, "a"}, {Job{0}, "b"}, {Job{1}, "c"}}
	results := make([]posthaste.SinkResult, 3)
	var published []string
	PublishAll(ctx, c, 0, jobs, results, func(on *roomFor, jobs []testJob) []testJob {
		on.Retire()
		if published = append(published, jobs[0].name); len(published) == 2 {
			cancel()
			c.slots[0].turn <- struct{}{} // so that no connection is free
		}
		return jobs[1:]
	})
	if !slices.Equal(published, []string{"a", "b"}) || dialed != 2 {
		t.Errorf("published %q on %d connections", published, dialed)
	}
	if results[2].Err != nil || results[0].Err != nil || !errors.Is(results[1].Err, context.Canceled) {
		t.Errorf("the results are %v", results)
	}
}

func TestClientTLS(t *testing.T) {
	t.Parallel()
	given := &tls.Config{MinVersion: tls.VersionTLS10}
	for _, c := range []*tls.Config{nil, given, {ServerName: "other", MinVersion: tls.VersionTLS13}} {
		got := ClientTLS(c, "broker")
		name, version := "broker", uint16(tls.VersionTLS12)
		if c != nil && c != given {
			name, version = "other", tls.VersionTLS13
		}
		if got.ServerName != name || got.MinVersion != version {
			t.Errorf("of %+v it made server name %q and version %x", c, got.ServerName, got.MinVersion)
		}
	}
	if given.ServerName != "" || given.MinVersion != tls.VersionTLS10 {
		t.Error("the given configuration was changed")
	}
}

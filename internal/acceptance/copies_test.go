//go:build unix

package acceptance

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

// refusals counts how often a worker was rejected.
type refusals struct{ atomic.Int64 }

func (r *refusals) Event(_ context.Context, e posthaste.Event) {
	if e.Kind == posthaste.EventError && posthaste.CodeOf(e.Err) == posthaste.CodeRefused {
		r.Add(1)
	}
}

// A base backup that is started next to the original delivers nothing to a worker from
// elsewhere, which waits until an operator allows it. The original resumes by itself after a
// crash, and so does a promoted standby.
func TestPhysicalCopyDeliversNothing(t *testing.T) {
	t.Parallel()
	original := testpg.Server(t)
	open := func(s *devpg.Server, environment string) *postgres.Engine {
		t.Helper()
		engine, err := postgres.Open(t.Context(), s.URL(), postgres.WithEnvironment(environment))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(engine.Close)
		return engine
	}
	// works starts a worker, which ends with the test.
	works := func(engine posthaste.Store, config worker.Config) (handled chan posthaste.MessageID) {
		t.Helper()
		handled = make(chan posthaste.MessageID, 10)
		w := worker.New(engine, config)
		worker.HandleRaw(w, "q", func(_ context.Context, d posthaste.RawDelivery) error {
			handled <- d.MessageID
			return nil
		})
		testrun.Background(t, w.Run)
		return handled
	}
	next := func(handled chan posthaste.MessageID, want posthaste.MessageID) {
		t.Helper()
		select {
		case got := <-handled:
			if got != want {
				t.Fatalf("handled %s, want %s", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("message %s was not handled", want)
		}
	}
	b := openBooks(t, original.URL())
	b.exec(`select posthaste.create_queue('q')`)
	send := func(to *books) posthaste.MessageID {
		return posthaste.MessageID(ask[int64](to, `select posthaste.send('q', '1')`))
	}
	production := open(original, "production")
	handled := works(production, worker.Config{Lease: 5 * time.Second})
	next(handled, send(b))

	dir, following := testdb.Copy(t, original, false), follower(b, original)
	// The original after a crash.
	if err := original.Kill(); err != nil {
		t.Fatal(err)
	}
	testdb.Promote(t, following)
	if err := original.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	next(handled, send(b))
	// The former standby, with a worker of its own.
	next(works(open(following, "production"), worker.Config{Lease: 5 * time.Second}), send(openBooks(t, following.URL())))

	copied := testpg.Unfilled(t, func(c *devpg.Config) { c.DataDir = dir })
	c := openBooks(t, copied.URL())
	waiting := send(c)
	staging := open(copied, "staging")
	refused := func(err error) bool { return posthaste.CodeOf(err) == posthaste.CodeRefused }
	if err := staging.Ready(t.Context()); !refused(err) {
		t.Errorf("a copy is ready: %v", err)
	}
	if _, err := staging.Register(t.Context(), posthaste.WorkerInfo{Name: "w", Lease: time.Second}); !refused(err) {
		t.Errorf("a worker from elsewhere registers: %v", err)
	}
	var tried refusals
	elsewhere := works(staging, worker.Config{Telemetry: &tried})
	testrun.Until(t, patience, "the worker was refused again and again", func() bool { return tried.Load() >= 3 })
	if _, err := postgres.Rebase(t.Context(), copied.URL(), true, func(string) {}); err != nil {
		t.Fatal(err)
	}
	next(elsewhere, waiting)
	if err := staging.Ready(t.Context()); err != nil {
		t.Errorf("not ready, though a person said that it may be: %v", err)
	}
}

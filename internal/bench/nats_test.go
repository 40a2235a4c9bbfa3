//go:build unix

package bench

import (
	"os"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// runNATS runs scenario nats briefly and checks its figures.
func runNATS(t *testing.T, o Options, servers int) *Result {
	t.Helper()
	if o.Duration == 0 {
		o.Duration = time.Second
	}
	o.drain = patient
	if err := o.check("nats"); err != nil {
		t.Fatal(err)
	}
	o.setDefaults("nats")
	r, err := execute(t.Context(), "nats", o, patient)
	if err != nil {
		t.Fatal(err)
	}
	if r.NATSResult == nil || r.Servers != servers || r.Machine.NATSVersion == "" || r.Machine.PostgresVersion != "" {
		t.Fatalf("%+v", r)
	}
	aboveKnown(t, "per_second", r.PerSecond)
	aboveKnown(t, "ratio", r.Ratio)
	above(t, "messages", float64(r.Messages))
	for _, w := range r.NATSWays {
		aboveKnown(t, w.Way, w.Ratio)
		above(t, w.Way, w.PerSecond)
		above(t, w.Way+" by the raw client", w.RawPerSecond)
		aboveKnown(t, "client CPU of "+w.Way, w.ClientCPU)
	}
	return r
}

func TestBenchNATS(t *testing.T) {
	t.Parallel()
	t.Run("its own", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		r := runNATS(t, Options{DataDir: dir}, 1)
		if len(r.NATSWays) != len(natsWays) || r.IdleQueues != natsIdleQueues || !r.Machine.Embedded || r.Valid == inMemory(dir) {
			t.Errorf("valid is %t (%s): %+v on %+v", r.Valid, r.Reason, r.NATSResult, r.Machine)
		}
		shows(t, r, "batches-1000", "of the raw client", "pulls/s", "NATS 2.")
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	t.Run("one that is given", func(t *testing.T) {
		t.Parallel()
		s, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		defer func() { s.Shutdown(); s.WaitForShutdown() }()
		if !s.ReadyForConnections(patient) {
			t.Fatal("the server does not start")
		}
		conn, err := natsgo.Connect(s.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		js, err := jetstream.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "posthaste-log", Subjects: []string{"another"}}); err != nil {
			t.Fatal(err)
		}
		r := runNATS(t, Options{NATSURL: s.ClientURL(), Way: "handled"}, 0)
		if len(r.NATSWays) != 1 || r.NATSWays[0].Way != "handled" || r.NATSWays[0].ServerCPU != nil || r.IdleQueues != 0 {
			t.Errorf("%+v", r.NATSResult)
		}
		var left []string
		for name := range js.StreamNames(t.Context()).Name() {
			left = append(left, name)
		}
		if len(left) != 1 || left[0] != "posthaste-log" {
			t.Errorf("streams left behind: %v", left)
		}
	})
	t.Run("a cluster", func(t *testing.T) {
		testrun.Nightly(t, "it starts three servers; one server runs on each change")
		t.Parallel()
		runNATS(t, Options{Servers: 3, Way: "singly"}, 3)
	})
}

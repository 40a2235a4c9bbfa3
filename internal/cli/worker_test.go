//go:build unix

package cli_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
)

// silentServer accepts connections, reports each, and never sends anything.
func silentServer(t *testing.T) (address string, connected <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	came := make(chan struct{}, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			came <- struct{}{}
		}
	}()
	return l.Addr().String(), came
}

// TestHA3_WorkerWithLongJobs checks that a worker with long deliveries ends after its grace
// period. The messages are redelivered at once, before the lease of the worker ends. A second
// signal does not wait for the grace period.
func TestHA3_WorkerWithLongJobs(t *testing.T) {
	t.Parallel()
	database := testpg.New(t)
	engine, err := postgres.Open(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	const mails = 3
	ids := sendLongMails(t, engine, mails)
	silent, connected := silentServer(t)
	begin := func(grace string) *process {
		t.Helper()
		p := start(t, "", []string{"DATABASE_URL=" + database, "SMTP_URL=smtp://" + silent + "?tls=none"}, "worker", "--queue", email.Queue, "--grace", grace)
		for range mails {
			select {
			case <-connected:
			case <-time.After(patience):
				t.Fatalf("the deliveries do not start:\n%s", p.said())
			}
		}
		return p
	}

	p := begin("500ms")
	signalled := time.Now()
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(signalled); took > 30*time.Second {
		t.Errorf("it ended %s after the signal, with a grace of half a second", took)
	}
	eventually(t, "they can run again at once", haveState(engine, ids, posthaste.StateReady))

	p = begin("10m")
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it stops", func() error {
		if !strings.Contains(p.said(), "a second signal stops it at once") {
			return fmt.Errorf("it said %q", p.said())
		}
		return nil
	})
	if code := p.stop(syscall.SIGTERM); code != 143 {
		t.Errorf("second signal: exit code %d, want 143", code)
	}

	c, err := catcher.Start(catcher.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start(t, "", []string{"DATABASE_URL=" + database, "SMTP_URL=smtp://" + c.Addr() + "?tls=none"}, "worker", "--queue", email.Queue)
	eventually(t, "another worker delivers them", haveState(engine, ids, posthaste.StateDone))
	wantSink(t, engine, posthaste.WorkerSink{Queue: email.Queue, Subscription: posthaste.DefaultSubscription, Destination: "mail server " + c.Addr()})
}

// wantSink fails unless a worker is registered with a sink.
func wantSink(t *testing.T, engine posthaste.Store, want posthaste.WorkerSink) {
	t.Helper()
	workers, err := engine.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(workers, func(w posthaste.WorkerStatus) bool { return slices.Contains(w.Sinks, want) }) {
		t.Errorf("none of the workers %+v has the sink %+v", workers, want)
	}
}

// sendLongMails creates the queue of e-mails with a long timeout, so that only the grace
// period ends deliveries, and sends n mails.
func sendLongMails(t *testing.T, engine posthaste.Store, n int) []posthaste.MessageID {
	t.Helper()
	err := engine.CreateQueue(t.Context(), email.Queue, posthaste.QueueOptions{MaxPayload: posthaste.MaxPayloadBytes, Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	messages := make([]posthaste.Message, n)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: email.Queue, Payload: []byte(aMail), ContentType: posthaste.ContentTypeJSON}
	}
	ids, err := posthaste.IDs(engine.Send(t.Context(), messages...))
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// haveState returns a condition that all messages have a state.
func haveState(engine posthaste.Store, ids []posthaste.MessageID, want posthaste.State) func() error {
	return func() error {
		for _, id := range ids {
			m, err := engine.Message(context.Background(), id)
			if err != nil {
				return err
			}
			if s := m.Subscriptions[0]; s.State != want {
				return fmt.Errorf("message %s is %s after %+v, want %s", id, s.State, s.Attempts, want)
			}
		}
		return nil
	}
}

// A worker whose database is away, or does not answer, says that it lives: a restart would not
// help. The health check of the image reads it by variables.
func TestWorkerLivesWithoutItsDatabase(t *testing.T) {
	t.Parallel()
	silent, _ := silentServer(t)
	for _, database := range []string{"127.0.0.1:1", silent} {
		p := start(t, "", []string{"DATABASE_URL=postgres://app@" + database + "/app", "SMTP_URL=smtp://127.0.0.1:1"}, "worker", "--queue", email.Queue, "--metrics-listen", "127.0.0.1:0")
		eventually(t, "it is alive", func() error {
			address := metricsOn.FindStringSubmatch(p.said())
			if address == nil {
				return fmt.Errorf("it said %q", p.said())
			}
			listen := strings.TrimSuffix(strings.TrimPrefix(address[1], "http://"), "/metrics")
			check := start(t, "", []string{"POSTHASTE_LISTEN=" + listen, "POSTHASTE_LIVE=true"}, "healthcheck")
			if code := check.wait(); code != 0 {
				return fmt.Errorf("the health check ends with %d: %s", code, check.said())
			}
			return nil
		})
	}
}

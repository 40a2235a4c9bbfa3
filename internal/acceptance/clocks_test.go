//go:build unix

package acceptance

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/worker"
)

// The queues of a process whose clock is off.
const (
	offOurs   = "ours"   // it sends there
	offTicks  = "ticks"  // its schedule sends there
	offTheirs = "theirs" // it handles messages from there
)

const (
	offDelay = 2 * time.Second
	offLease = 3 * time.Second
)

// offRole runs in a process whose clock is off. It sends a message that is due soon and one
// with a dedupe key twice, creates a schedule, and works. Its worker's name contains its time.
func offRole(ctx context.Context, t task, ready func()) error {
	engine, err := openStore(ctx, t.URL)
	if err != nil {
		return err
	}
	defer engine.Close()
	client := posthaste.NewClient(engine)
	once := posthaste.Message{Queue: offOurs, Payload: 1, DedupeKey: "one", DedupeWindow: time.Minute}
	for _, m := range []posthaste.Message{once, once, {Queue: offOurs, Payload: 2, Delay: offDelay}} {
		if _, err := client.Send(ctx, m); err != nil {
			return err
		}
	}
	if _, err := engine.PutSchedule(ctx, posthaste.Schedule{Name: "often", Spec: "every 1 second", Message: posthaste.Message{Queue: offTicks, Payload: 0}}); err != nil {
		return err
	}
	w := worker.New(engine, worker.Config{Name: fmt.Sprint(time.Now().Unix()), Lease: offLease})
	worker.HandleRaw(w, offTheirs, func(_ context.Context, d posthaste.RawDelivery) error {
		if d.Attempt == 1 {
			return posthaste.RetryAfter(errors.New("later"), offDelay)
		}
		works(2 * offLease)
		return nil
	})
	ready()
	return w.Run(ctx)
}

// A client's clock determines nothing: neither when a message is due or retried, nor how long
// a lease or a dedupe key lasts, nor when a schedule ticks. The process is built with a clock
// that is an hour off.
func TestDU5_ClientsClocksDecideNothing(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "compiles everything with another clock")
	for name, off := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			for _, queue := range []string{offOurs, offTicks, offTheirs} {
				s.must(s.engine.CreateQueue(s.ctx, queue, s.keeping(posthaste.QueueOptions{})))
			}
			theirs := s.send(offTheirs, 1)[0]
			s.spawn(task{Role: "off", Program: builtOff(t, off)})
			s.worksRightly()
			// Messages that it holds for longer than its lease stay its own.
			var state posthaste.MessageState
			s.until("the messages that it works on are done", func() bool {
				state = s.state(theirs)
				return state.State == posthaste.StateDone
			})
			a := state.Attempts
			if len(a) < 2 || a[0].Outcome != posthaste.OutcomeRetried {
				t.Fatalf("its story tells %+v", a)
			}
			if wait := a[1].ClaimedAt.Sub(a[0].EndedAt); wait < offDelay || wait > 10*time.Minute {
				t.Errorf("it was tried again after %s, want %s: %+v", wait, offDelay, a)
			}
			if len(a) > 2 {
				t.Logf("this machine stood still for a lease: %+v", a)
			}
			its, err := strconv.ParseInt(a[0].Worker, 10, 64)
			s.must(err)
			if by := time.Unix(its, 0).Sub(a[0].ClaimedAt) - off; by.Abs() > 10*time.Minute {
				t.Errorf("its clock differs by %s from one that is %s off", by, off)
			}
		})
	}
}

// worksRightly handles the messages of a process with a wrong clock, by this process's clock,
// until its delayed message and three ticks have come.
func (s *stage) worksRightly() {
	s.Helper()
	got := make(chan posthaste.RawDelivery, 100)
	handle := func(_ context.Context, d posthaste.RawDelivery) error { got <- d; return nil }
	// The lease is so long that no stall of the machine ends it.
	w := worker.New(s.open(), worker.Config{Lease: time.Minute, Heartbeat: 900 * time.Millisecond, Logger: s.log})
	worker.HandleRaw(w, offOurs, handle)
	worker.HandleRaw(w, offTicks, handle)
	s.run(w)
	ticks, once := 0, 0
	for due := false; !due || ticks < 3; {
		select {
		case d := <-got:
			switch {
			case d.Queue == offTicks:
				ticks++
				tick, err := time.Parse(time.RFC3339, d.Headers[posthaste.HeaderTick])
				if late := time.Since(tick); err != nil || late < 0 || late > 10*time.Minute {
					s.Fatalf("a tick of %s was sent at %s: %v", tick, time.Now(), err)
				}
			case string(d.Payload) == "1":
				once++
			default:
				due = true
				if late := time.Since(d.CreatedAt.Add(offDelay)); late < 0 || late > 10*time.Minute {
					s.Errorf("the message came %s after it was due", late)
				}
			}
		case <-time.After(patience):
			s.Fatalf("waited in vain: %d ticks, due: %t", ticks, due)
		}
	}
	if once != 1 {
		s.Errorf("a message with a dedupe key came %d times", once)
	}
}

// builtOff builds the test binary with a clock that is off.
func builtOff(t *testing.T, off time.Duration) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "off")
	if said, err := exec.Command("../../scripts/clock-off", strconv.Itoa(int(off.Seconds())), "go", "test", "-c", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return program
}

package redis

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/worker"
)

// Redis's clock that was set back is told once, and an hour without upkeep is no sign
// of it.
func TestClockSetBackIsTold(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	// The clock itself cannot be turned here, so the time of the last round is.
	last := func(ago time.Duration) {
		t.Helper()
		if err := e.client.HSet(t.Context(), e.keys.workers(), "#clock", micros(time.Now().Add(-ago))).Err(); err != nil {
			t.Fatal(err)
		}
	}
	rounds := func(want int) {
		t.Helper()
		told := 0
		for range 3 {
			if _, err := e.Rescue(t.Context()); err != nil { // tells nobody
				t.Fatal(err)
			}
			reply, err := e.Maintain(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if reply.ClockSetBack {
				told++
			}
		}
		if told != want {
			t.Errorf("the answers told of it %d times, want %d", told, want)
		}
	}
	rounds(0)
	last(-time.Hour)
	rounds(1)
	last(time.Hour)
	rounds(0)
}

// What a process does whose clock is off: see runOff.
const clockOff = "POSTHASTE_TEST_CLOCK_OFF"

// runOff sends what is due soon, puts a schedule, and works, as a process does whose
// clock is off.
func runOff(where string) error {
	ctx := context.Background()
	url, prefix, _ := strings.Cut(where, " ")
	e, err := Open(ctx, url, WithPrefix(prefix))
	if err != nil {
		return err
	}
	for range 2 { // the second one is known
		if _, err := e.Send(ctx, posthaste.Message{Queue: jobs, Payload: 1, DedupeKey: "one", DedupeWindow: time.Minute}); err != nil {
			return err
		}
	}
	if _, err := e.Send(ctx, posthaste.Message{Queue: jobs, Payload: 2, Delay: offDelay}); err != nil {
		return err
	}
	if _, err := e.SchedulePut(ctx, posthaste.Schedule{Name: "often", Spec: "every 1 second", Message: posthaste.Message{Queue: "ticks", Payload: 0}}); err != nil {
		return err
	}
	w := worker.New(e, worker.Config{Name: "off", Lease: 3 * time.Second})
	worker.Handle(w, "theirs", func(_ context.Context, d posthaste.Delivery[int]) error {
		if d.Attempt == 1 {
			return posthaste.RetryAfter(fmt.Errorf("later"), offDelay)
		}
		time.Sleep(6 * time.Second) // two leases
		return nil
	})
	fmt.Println(time.Now().Unix())
	return w.Run(ctx)
}

const offDelay = 2 * time.Second

// A client's clock decides nothing: neither when a message is due or tried again, nor how
// long a lease or a dedupe key lasts, nor when a schedule ticks. The process is built with
// another clock, an hour off.
func TestClientsClocksDecideNothing(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "compiles everything with another clock")
	for name, seconds := range map[string]int{"ahead": 3600, "behind": -3600} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t, server.URL())
			create(t, e, posthaste.QueueOptions{})
			for _, q := range []string{"ticks", "theirs"} {
				if err := e.QueueCreate(t.Context(), q, posthaste.QueueOptions{Retention: time.Hour}); err != nil {
					t.Fatal(err)
				}
			}
			theirs, err := e.Send(t.Context(), posthaste.Message{Queue: "theirs", Payload: 1})
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(builtOff(t, seconds))
			cmd.Env = append(os.Environ(), clockOff+"="+server.URL()+" "+e.keys.prefix)
			cmd.Stderr = t.Output()
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Wait() }()
			defer func() { _ = cmd.Process.Kill() }()
			var its int64
			if _, err := fmt.Fscan(out, &its); err != nil {
				t.Fatalf("it did not get to work: %v", err)
			}
			if off := its - time.Now().Unix(); off < int64(seconds)-600 || off > int64(seconds)+600 {
				t.Fatalf("its clock is %d s off", off)
			}
			// Ours, whose clock is right, looks after the queue meanwhile. No standing still of
			// the machine ends its own lease.
			var early time.Duration
			var ticks, one int
			got := make(chan posthaste.RawDelivery, 100)
			work(t, e, worker.Config{Lease: time.Minute, Heartbeat: 900 * time.Millisecond}, func(d posthaste.RawDelivery) error { got <- d; return nil }, func(w *worker.Worker) {
				worker.HandleRaw(w, "ticks", func(_ context.Context, d posthaste.RawDelivery) error { got <- d; return nil })
			})
			for late := false; !late || ticks < 3; {
				select {
				case d := <-got:
					switch {
					case d.Queue == "ticks":
						ticks++
						tick, err := time.Parse(time.RFC3339, d.Headers[posthaste.HeaderTick])
						if by := time.Since(tick); err != nil || by < 0 || by > 10*time.Minute {
							t.Fatalf("a tick of %s was sent at %s: %v", tick, time.Now(), err)
						}
					case string(d.Payload) == "1":
						one++
					default:
						late = true
						early = time.Until(d.CreatedAt.Add(offDelay))
					}
				case <-time.After(2 * time.Minute):
					t.Fatalf("waited in vain: %d ticks, due: %t", ticks, late)
				}
			}
			if early > 0 || early < -10*time.Minute {
				t.Errorf("the message came %s before it was due", early)
			}
			if one != 1 {
				t.Errorf("a message with a dedupe key came %d times", one)
			}
			// What it holds for longer than its lease stays its own.
			var state posthaste.MessageState
			until(t, "what it works on is done", func() bool {
				info, err := e.Message(t.Context(), theirs[0])
				if err != nil {
					t.Fatal(err)
				}
				state = info.Subscriptions[0]
				return state.State == posthaste.StateDone
			})
			if a := state.Attempts; len(a) < 2 || a[0].Outcome != posthaste.Retried || a[1].ClaimedAt.Sub(a[0].EndedAt) < offDelay || a[1].ClaimedAt.Sub(a[0].EndedAt) > 10*time.Minute {
				t.Errorf("its story tells %+v", a)
			} else if len(a) > 2 {
				t.Logf("this machine stood still for a lease: %+v", a)
			}
		})
	}
}

// builtOff builds this test's program with a clock that is off.
func builtOff(t *testing.T, seconds int) string {
	t.Helper()
	source, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("there is no go to build the program with: %v", err)
	}
	dir, file := t.TempDir(), filepath.Join(strings.TrimSpace(string(source)), "src", "time", "time.go")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const reads = "\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(text), reads) != 1 {
		t.Fatalf("%s does not read the clock as this test expects", file)
	}
	changed := strings.Replace(string(text), reads, reads+fmt.Sprintf("\tsec += %d\n", seconds), 1)
	for name, content := range map[string]string{"time.go": changed, "overlay.json": fmt.Sprintf(`{"Replace": {%q: %q}}`, file, filepath.Join(dir, "time.go"))} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "off")
	if said, err := exec.Command("go", "test", "-c", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return program
}

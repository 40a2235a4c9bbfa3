package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

type (
	mail struct{ To string }
	sms  struct{ Number string }
)

func (mail) Kind() string { return "mail" }
func (sms) Kind() string  { return "sms" }

// heard collects what handlers were called with.
type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, fmt.Sprintf(format, args...))
}

func (h *heard) sorted() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(slices.Values(h.all))
}

func (f *fixture) hears(h *heard, want ...string) {
	f.Helper()
	f.until(fmt.Sprintf("the handlers hear %q", want), func() bool { return slices.Equal(h.sorted(), want) })
}

func (f *fixture) put(messages ...posthaste.Message) []posthaste.MessageID {
	f.Helper()
	for i := range messages {
		messages[i].Queue = queue
	}
	ids, err := posthaste.IDs(f.memory.Send(f.ctx, messages...))
	f.must(err)
	return ids
}

// JB1: an old version of a program in a rolling deploy never gets the messages of a kind that only
// the new version handles, and no attempt is spent.
func TestJB1_RollingDeploy(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		var h heard
		old := f.run(f.memory, worker.Config{Name: "old"}, func(w *worker.Worker) {
			worker.Register(w, queue, func(_ context.Context, d posthaste.Delivery[mail]) error {
				h.add("old mail %s", d.Payload.To)
				return nil
			})
		})
		f.put(posthaste.Message{Payload: mail{"a"}}, posthaste.Message{Payload: sms{"1"}})
		f.hears(&h, "old mail a")
		info := f.aside("sms", 1)
		if info.Known {
			f.Errorf("kind sms is said to be known: %+v", info)
		}
		f.run(f.memory, worker.Config{Name: "new"}, func(w *worker.Worker) {
			worker.Register(w, queue, func(_ context.Context, d posthaste.Delivery[sms]) error {
				h.add("new sms %s, attempt %d", d.Payload.Number, d.Attempt)
				return nil
			})
			worker.Handle(w, queue, func(_ context.Context, d posthaste.Delivery[map[string]any]) error {
				h.add("other %s", d.Kind)
				return nil
			})
		})
		f.hears(&h, "new sms 1, attempt 1", "old mail a")
		old.stop()
		f.put(posthaste.Message{Payload: map[string]any{}, Kind: "fax"})
		f.hears(&h, "new sms 1, attempt 1", "old mail a", "other fax")
	})
}

// aside waits until n messages of a kind are set aside.
func (f *fixture) aside(kind string, n int64) (found posthaste.SetAside) {
	f.Helper()
	f.until(fmt.Sprintf("%d messages of kind %s are set aside", n, kind), func() bool {
		infos, err := f.memory.Queues(f.ctx, queue)
		f.must(err)
		i := slices.IndexFunc(infos[0].Subscriptions[0].SetAside, func(a posthaste.SetAside) bool { return a.Kind == kind && a.Waiting == n })
		if i >= 0 {
			found = infos[0].Subscriptions[0].SetAside[i]
		}
		return i >= 0
	})
	return found
}

// The worker logs once for each kind that it sets its messages aside, and names the kind of a
// message that failed.
func TestKindsAreLogged(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{MaxAttempts: 1}, func(f *fixture) {
		f.run(f.memory, worker.Config{}, func(w *worker.Worker) {
			worker.Register(w, queue, func(context.Context, posthaste.Delivery[mail]) error { return errors.New("no") })
		})
		for n := int64(1); n <= 2; n++ {
			f.put(posthaste.Message{Payload: sms{"1"}}, posthaste.Message{Payload: 1, Kind: "fax"})
			f.aside("sms", n)
			f.aside("fax", n)
		}
		f.put(posthaste.Message{Payload: mail{"a"}})
		var lines []string
		f.until("the failure is logged", func() bool {
			f.seen.mu.Lock()
			defer f.seen.mu.Unlock()
			lines = nil
			for _, record := range f.seen.logs {
				record.Attrs(func(a slog.Attr) bool {
					if a.Key == "kind" {
						lines = append(lines, a.Value.String()+": "+record.Message[:len("messages of this kind")])
					}
					return true
				})
			}
			slices.Sort(lines)
			return len(lines) > 0 && strings.HasPrefix(lines[len(lines)-1], "sms") && strings.HasPrefix(lines[min(1, len(lines)-1)], "mail")
		})
		if want := []string{"fax: messages of this kind", "mail: a message failed and ", "sms: messages of this kind"}; !slices.Equal(lines, want) {
			f.Errorf("logged was %q, want %q", lines, want)
		}
	})
}

// Batches are handed to the handler of their kind, and a panic of one fails no other.
func TestBatchesByKind(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{MaxAttempts: 1}, func(f *fixture) {
		var h heard
		ids := f.put(posthaste.Message{Payload: mail{"a"}}, posthaste.Message{Payload: sms{"1"}}, posthaste.Message{Payload: mail{"b"}}, posthaste.Message{Payload: 1, Kind: "fax"})
		f.run(f.memory, worker.Config{}, func(w *worker.Worker) {
			worker.RegisterBatch(w, queue, func(_ context.Context, batch []posthaste.Delivery[mail]) []error {
				for _, d := range batch {
					h.add("%s of %d", d.Payload.To, len(batch))
				}
				return nil
			})
			worker.RegisterBatch(w, queue, func(context.Context, []posthaste.Delivery[sms]) []error { panic("no modem") })
		})
		f.hears(&h, "a of 2", "b of 2")
		f.aside("fax", 1)
		f.until("the message that met a panic is dead", func() bool {
			dead, err := f.memory.DeadLetters(f.ctx, posthaste.DeadLetterFilter{All: true})
			f.must(err)
			return len(dead.Items) == 1 && dead.Items[0].ID == ids[1] && strings.Contains(dead.Items[0].Error, "no modem")
		})
	})
}

// Options of a subscription must not contradict each other.
func TestConflictsOfKinds(t *testing.T) {
	t.Parallel()
	one := func(context.Context, posthaste.Delivery[mail]) error { return nil }
	two := func(context.Context, posthaste.Delivery[sms]) error { return nil }
	many := func(context.Context, []posthaste.Delivery[sms]) []error { return nil }
	for want, register := range map[string]func(w *worker.Worker){
		`two handlers for kind "mail"`: func(w *worker.Worker) {
			worker.Register(w, queue, one)
			worker.Register(w, queue, one)
		},
		"either all get single messages or all get batches": func(w *worker.Worker) {
			worker.Register(w, queue, one)
			worker.RegisterBatch(w, queue, many)
		},
		"either all handlers": func(w *worker.Worker) {
			worker.Register(w, queue, one)
			worker.Register(w, queue, two, worker.WithOwnTransaction())
		},
		"the concurrencies 3 and 4": func(w *worker.Worker) {
			worker.Register(w, queue, one, worker.WithConcurrency(3))
			worker.Register(w, queue, two, worker.WithConcurrency(4))
		},
	} {
		w := worker.New(nil, worker.Config{})
		register(w)
		if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run returned %v, want %q", err, want)
		}
	}
	w := worker.New(nil, worker.Config{})
	worker.Register(w, queue, one)
	worker.Register(w, queue, two)
	if got := w.Reads(); len(got) != 1 {
		t.Errorf("it reads %v", got)
	}
}

// A message of an at-most-once queue would be lost if it was set aside.
func TestKindsOfAtMostOnceQueues(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{Mode: posthaste.AtMostOnce}, func(f *fixture) {
		w := worker.New(f.memory, worker.Config{})
		worker.Register(w, queue, func(context.Context, posthaste.Delivery[mail]) error { return nil })
		if err := w.Run(f.ctx); posthaste.CodeOf(err) != posthaste.CodeInvalid {
			f.Errorf("Run returned %v", err)
		}
	})
}

// The policy of a handler decides how long a failed message waits, unless the error does.
func TestRetryPolicy(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{BackoffBase: time.Hour, BackoffMax: time.Hour}, func(f *fixture) {
		var h heard
		fails := func(_ context.Context, d posthaste.Delivery[mail]) error {
			h.add("attempt %d after %s", d.Attempt, time.Since(f.began).Round(time.Second))
			if d.Attempt == 3 {
				return nil
			}
			return errors.New("busy")
		}
		f.put(posthaste.Message{Payload: mail{"a"}})
		f.run(f.memory, worker.Config{RetryPolicy: worker.RetryPolicyFunc(func(posthaste.RawDelivery, error) time.Duration { panic("not called") })}, func(w *worker.Worker) {
			worker.Register(w, queue, fails, worker.WithRetryPolicy(worker.RetryPolicyFunc(func(d posthaste.RawDelivery, err error) time.Duration {
				if err.Error() != "busy" {
					t.Errorf("the policy gets %v", err)
				}
				return time.Duration(d.Attempt) * 10 * time.Second
			})))
		})
		f.hears(&h, "attempt 1 after 0s", "attempt 2 after 10s", "attempt 3 after 30s")
	})
}

// A policy that blocks, or that ends its goroutine, holds up its own message and no other.
func TestRetryPolicyThatDoesNotAnswer(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{Timeout: time.Second, MaxAttempts: 2, BackoffBase: time.Millisecond, BackoffMax: time.Millisecond}, func(f *fixture) {
		const fails, exits, overruns, overrunsToo, works = 0, 1, 2, 3, 4
		ids := f.send(queue, 5)
		asked, goOn := make(chan int, 10), make(chan struct{})
		policy := func(d posthaste.RawDelivery, _ error) time.Duration {
			payload := int(d.Payload[0] - '0')
			if payload == exits {
				runtime.Goexit()
			}
			asked <- payload
			<-goOn
			return 0
		}
		f.run(f.memory, worker.Config{Concurrency: 5, Overrun: time.Millisecond, RetryPolicy: worker.RetryPolicyFunc(policy)}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(ctx context.Context, d posthaste.RawDelivery) error {
				switch d.Payload[0] - '0' {
				case works:
					<-time.After(500 * time.Millisecond)
					return nil
				case overruns, overrunsToo:
					<-goOn
					return nil
				}
				return errors.New("no")
			})
		})
		f.untilState(posthaste.StateDone, ids[works])
		f.untilState(posthaste.StateDead, ids[exits])
		f.until("all are asked about", func() bool { return len(asked) == 3 })
		close(goOn)
		f.untilState(posthaste.StateDead, ids[fails])
		f.untilState(posthaste.StateDone, ids[overruns], ids[overrunsToo])
	})
}

package worker_test

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// batches records the batches that a handler got.
type batches struct {
	mu    sync.Mutex
	sizes []int
	runs  map[int]int // by payload
}

func (b *batches) note(batch []posthaste.Delivery[int]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runs == nil {
		b.runs = map[int]int{}
	}
	b.sizes = append(b.sizes, len(batch))
	for _, d := range batch {
		b.runs[d.Payload]++
	}
}

func (b *batches) calls() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.sizes)
}

// A message that fails neither fails nor repeats the others of its batch, each counts its own
// attempts, and a message that cannot be decoded never reaches the handler.
func TestBatchHandlerAnswersEach(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		var got batches
		ids := f.send(queue, 200)
		bad, err := posthaste.IDs(f.memory.Send(f.ctx, posthaste.Message{Queue: queue, Payload: "no number"}, posthaste.Message{Queue: queue, Payload: []byte{1}, ContentType: "x/y"}))
		f.must(err)
		f.run(f.memory, worker.Config{}, func(w *worker.Worker) {
			worker.HandleBatch(w, queue, func(_ context.Context, batch []posthaste.Delivery[int]) []error {
				got.note(batch)
				errs := make([]error, len(batch))
				for i, d := range batch {
					switch d.Payload {
					case 3:
						errs[i] = errors.New("always")
					case 5:
						errs[i] = fmt.Errorf("wrapped: %w", posthaste.Permanent(errors.New("never")))
					case 7:
						if d.Attempt == 1 {
							errs[i] = fmt.Errorf("wrapped: %w", posthaste.RetryAfter(errors.New("not yet"), time.Millisecond))
						}
					case 9:
						errs[i] = posthaste.RetryAfter(errors.New("not today"), time.Hour)
					}
				}
				return errs
			}, worker.WithBatchSize(50), worker.WithConcurrency(1))
		})
		f.after(2 * time.Millisecond) // the longest backoffs of two retries
		for i, id := range ids {
			state, runs := posthaste.StateDone, 1
			switch i {
			case 3:
				state, runs = posthaste.StateDead, 3
			case 5:
				state = posthaste.StateDead
			case 7:
				runs = 2
			case 9:
				state = posthaste.StateRetrying
			}
			f.nowState(state, id)
			got.mu.Lock()
			if got.runs[i] != runs {
				f.Errorf("message %d ran %d times, want %d", i, got.runs[i], runs)
			}
			got.mu.Unlock()
		}
		f.nowState(posthaste.StateDead, bad...)
		for _, id := range bad {
			if a := f.state(id).Attempts; len(a) != 1 || !strings.Contains(a[0].Error, "int") {
				f.Errorf("what cannot be decoded has the story %+v", a)
			}
		}
		got.mu.Lock()
		defer got.mu.Unlock()
		if most := slices.Max(got.sizes); most < 40 || most > 50 {
			f.Errorf("the largest batch had %d, want all that fit", most)
		}
	})
}

// Messages that come one by one while a call runs are handled in one call.
func TestBatchesGatherWhileACallRuns(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		var got batches
		release := make(chan struct{})
		f.run(f.memory, worker.Config{}, func(w *worker.Worker) {
			worker.HandleBatch(w, queue, func(_ context.Context, batch []posthaste.Delivery[int]) []error {
				got.note(batch)
				<-release
				return nil
			}, worker.WithConcurrency(1))
		})
		ids := f.send(queue, 1)
		f.now("the first call runs", func() bool { return got.calls() == 1 })
		for range 8 {
			one := f.send(queue, 1)
			f.nowState(posthaste.StateRunning, one...) // claimed by itself, and waits
			ids = append(ids, one...)
		}
		close(release)
		f.nowState(posthaste.StateDone, ids...)
		got.mu.Lock()
		defer got.mu.Unlock()
		if !slices.Equal(got.sizes, []int{1, 8}) {
			f.Errorf("the batches had %v messages, want 1 and 8", got.sizes)
		}
	})
}

// A call that goes wrong as a whole fails all of its messages, but for those
// that cannot be decoded.
func TestBatchHandlerBreaks(t *testing.T) {
	for name, breaks := range map[string]struct {
		do  func(ctx context.Context) []error
		say string
	}{
		"panics":           {func(context.Context) []error { panic("oh no") }, "oh no"},
		"exits":            {func(context.Context) []error { goruntime.Goexit(); return nil }, "Goexit"},
		"answers too few":  {func(context.Context) []error { return make([]error, 1) }, "answered 1 of 3"},
		"answers too many": {func(context.Context) []error { return make([]error, 4) }, "answered 4 of 3"},
		"obeys its timeout": {func(ctx context.Context) []error {
			<-ctx.Done()
			return slices.Repeat([]error{ctx.Err()}, 3)
		}, "timed out after 100ms"},
	} {
		for _, around := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, middleware %t", name, around), func(t *testing.T) {
				o := quick()
				o.Timeout = 100 * time.Millisecond
				inBubble(t, o, func(f *fixture) {
					ids := f.send(queue, 3)
					bad, err := posthaste.IDs(f.memory.Send(f.ctx, posthaste.Message{Queue: queue, Payload: "no number"}))
					f.must(err)
					var options []worker.Option
					var failures atomic.Int32
					if around {
						options = append(options, worker.WithMiddleware(func(next posthaste.Handler) posthaste.Handler {
							return func(ctx context.Context, d posthaste.RawDelivery) error {
								err := next(ctx, d)
								if err != nil {
									failures.Add(1)
								}
								return err
							}
						}))
					}
					l := f.run(f.memory, worker.Config{Overrun: time.Minute}, func(w *worker.Worker) {
						worker.HandleBatch(w, queue, func(ctx context.Context, batch []posthaste.Delivery[int]) []error {
							if batch[0].Attempt > 1 {
								return nil
							}
							return breaks.do(ctx)
						}, options...)
					})
					f.untilState(posthaste.StateDone, ids...)
					f.untilState(posthaste.StateDead, bad...)
					l.stop()
					for _, id := range ids {
						if a := f.state(id).Attempts; len(a) != 2 || !strings.Contains(a[0].Error, breaks.say) {
							f.Errorf("message %d: %+v, want a first attempt that says %q", id, a, breaks.say)
						}
					}
					if a := f.state(bad[0]).Attempts; len(a) != 1 {
						f.Errorf("what cannot be decoded has the story %+v", a)
					}
					if around && failures.Load() != 4 {
						f.Errorf("the middleware saw %d failures, want 4", failures.Load())
					}
				})
			})
		}
	}
}

// A batch handler that ignores the end of its context is given up: its messages
// fail, but for those whose end is known, and others are handled.
func TestBatchHandlerThatIgnoresItsContext(t *testing.T) {
	o := quick()
	o.MaxAttempts, o.Timeout = 1, 100*time.Millisecond
	inBubble(t, o, func(f *fixture) {
		release := make(chan struct{})
		var returned atomic.Bool
		ids := f.send(queue, 3)
		bad, err := posthaste.IDs(f.memory.Send(f.ctx, posthaste.Message{Queue: queue, Payload: "no number"}))
		f.must(err)
		l := f.run(f.memory, worker.Config{Overrun: 2 * time.Second, Grace: time.Second}, func(w *worker.Worker) {
			worker.HandleBatch(w, queue, func(_ context.Context, batch []posthaste.Delivery[int]) []error {
				if batch[0].Payload == 0 {
					<-release
					returned.Store(true)
				}
				return nil
			}, worker.WithConcurrency(1))
		})
		// The overrun ends after 2.1 s. The pool looks for such handlers each 500 ms.
		f.after(2500*time.Millisecond - 1)
		f.nowState(posthaste.StateRunning, append(ids, bad...)...)
		f.after(1)
		f.nowState(posthaste.StateDead, append(ids, bad...)...)
		if text := f.state(ids[1]).Attempts[0].Error; !strings.Contains(text, "did not return") {
			f.Errorf("error %q", text)
		}
		if text := f.state(bad[0]).Attempts[0].Error; !strings.Contains(text, "decoded") {
			f.Errorf("what cannot be decoded failed with %q", text)
		}
		more, err := posthaste.IDs(f.memory.Send(f.ctx, posthaste.Message{Queue: queue, Payload: 1})) // although the only place was taken
		f.must(err)
		f.nowState(posthaste.StateDone, more...)
		close(release)
		f.now("the stubborn handler returns", returned.Load)
		l.stop()
		if s := f.state(ids[0]).State; s != posthaste.StateDead {
			f.Errorf("what the handler returned late made its message %s", s)
		}
	})
}

// Around a batch handler, middleware runs for each message: it may keep one out
// of the batch, change it, try it again by itself, and break over it alone.
func TestMiddlewareAroundBatches(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		var got batches
		var mu sync.Mutex
		var order []string
		tried := map[posthaste.MessageID]int{}
		outer := func(next posthaste.Handler) posthaste.Handler {
			return func(ctx context.Context, d posthaste.RawDelivery) error {
				mu.Lock()
				order = append(order, "outer")
				mu.Unlock()
				return next(ctx, d)
			}
		}
		inner := func(next posthaste.Handler) posthaste.Handler {
			return func(ctx context.Context, d posthaste.RawDelivery) error {
				mu.Lock()
				order = append(order, "inner")
				tried[d.MessageID]++
				again := tried[d.MessageID] > 1
				mu.Unlock()
				switch string(d.Payload) {
				case "1":
					return nil // done, and never handled
				case "2":
					if !again {
						panic("the middleware broke")
					}
				case "3":
					d.Payload = []byte("33")
				case "4":
					if err := next(ctx, d); err == nil {
						f.Error("the first try did not fail")
					}
					return next(ctx, d)
				case "5":
					if !again {
						return next(context.Background(), d)
					}
				case "6":
					done := make(chan error, 1) // as one with a timeout of its own does
					go func() { done <- next(ctx, d) }()
					return <-done
				}
				return next(ctx, d)
			}
		}
		var fours atomic.Int32
		ids := f.send(queue, 8)
		f.run(f.memory, worker.Config{Middleware: []func(posthaste.Handler) posthaste.Handler{outer}}, func(w *worker.Worker) {
			worker.HandleBatch(w, queue, func(_ context.Context, batch []posthaste.Delivery[int]) []error {
				got.note(batch)
				errs := make([]error, len(batch))
				for i, d := range batch {
					if d.Payload == 4 && fours.Add(1) == 1 {
						errs[i] = errors.New("try again")
					}
				}
				return errs
			}, worker.WithMiddleware(inner))
		})
		f.untilState(posthaste.StateDone, ids...)
		mu.Lock()
		defer mu.Unlock()
		got.mu.Lock()
		defer got.mu.Unlock()
		if want := (map[int]int{0: 1, 2: 1, 33: 1, 4: 2, 5: 1, 6: 1, 7: 1}); fmt.Sprint(got.runs) != fmt.Sprint(want) {
			f.Errorf("the handler got %v, want %v", got.runs, want)
		}
		if got.sizes[0] != 5 { // all but 1, 2 and 5
			f.Errorf("the first batch had %d messages, want 5", got.sizes[0])
		}
		for i, attempts := range []int{1, 1, 2, 1, 1, 2, 1, 1} {
			if n := len(f.state(ids[i]).Attempts); n != attempts {
				f.Errorf("message %d had %d attempts, want %d", i, n, attempts)
			}
		}
		if order[0] != "outer" {
			f.Errorf("the first one called was %s", order[0])
		}
	})
}

// A queue's own middleware is within the worker's, and only around that queue.
func TestMiddlewareOfOneQueue(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		f.create("other", posthaste.QueueOptions{})
		var mu sync.Mutex
		seen := map[string][]string{}
		say := func(who string) func(posthaste.Handler) posthaste.Handler {
			return func(next posthaste.Handler) posthaste.Handler {
				return func(ctx context.Context, d posthaste.RawDelivery) error {
					mu.Lock()
					seen[d.Queue] = append(seen[d.Queue], who)
					mu.Unlock()
					return next(ctx, d)
				}
			}
		}
		f.run(f.memory, worker.Config{Middleware: []func(posthaste.Handler) posthaste.Handler{say("all")}}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, f.seen.handle, worker.WithMiddleware(say("first"), say("second")))
			worker.HandleRaw(w, "other", f.seen.handle)
		})
		f.nowState(posthaste.StateDone, append(f.send(queue, 1), f.send("other", 1)...)...)
		mu.Lock()
		defer mu.Unlock()
		if fmt.Sprint(seen) != "map[other:[all] q:[all first second]]" {
			f.Errorf("called were %v", seen)
		}
	})
}

// fussy breaks over some payloads.
type fussy int

func (n *fussy) UnmarshalJSON(text []byte) error {
	if string(text) == "1" {
		panic("no ones")
	}
	_, err := fmt.Sscan(string(text), (*int)(n))
	return err
}

// A payload over which its own type breaks fails its message alone, like one
// that cannot be decoded.
func TestDecodingThatBreaks(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		ids := f.send(queue, 3)
		f.run(f.memory, worker.Config{}, func(w *worker.Worker) {
			worker.HandleBatch(w, queue, func(context.Context, []posthaste.Delivery[fussy]) []error { return nil })
		})
		f.untilState(posthaste.StateDone, ids[0], ids[2])
		f.untilState(posthaste.StateDead, ids[1])
		if a := f.state(ids[1]).Attempts; len(a) != 3 || !strings.Contains(a[0].Error, "no ones") {
			f.Errorf("it failed as %+v", a)
		}
		for _, id := range []posthaste.MessageID{ids[0], ids[2]} {
			if a := f.state(id).Attempts; len(a) != 1 {
				f.Errorf("another message of the batch had %d attempts", len(a))
			}
		}
	})
}

// tally decodes as many bytes as there are.
type tallyCodec struct{}

func (tallyCodec) ContentTypes() []string { return []string{"x/tally"} }
func (tallyCodec) Encode(value any) ([]byte, error) {
	return make([]byte, value.(int)), nil
}
func (tallyCodec) Decode(payload []byte, into any) error {
	if len(payload) > 5 {
		return errors.New("too many")
	}
	*into.(*int) = len(payload)
	return nil
}

// Payloads are decoded by the content type they bear, with the worker's codecs.
func TestCodecs(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		f.create("batches", posthaste.QueueOptions{})
		var mu sync.Mutex
		got := map[string]int{}
		f.run(f.memory, worker.Config{Codecs: []posthaste.Codec{tallyCodec{}}}, func(w *worker.Worker) {
			note := func(d posthaste.Delivery[int]) {
				mu.Lock()
				defer mu.Unlock()
				got[fmt.Sprintf("%s %s %d", d.Queue, d.ContentType, d.Payload)]++
			}
			worker.Handle(w, queue, func(_ context.Context, d posthaste.Delivery[int]) error { note(d); return nil })
			worker.HandleBatch(w, "batches", func(_ context.Context, batch []posthaste.Delivery[int]) []error {
				for _, d := range batch {
					note(d)
				}
				return nil
			})
		})
		for _, q := range []string{queue, "batches"} {
			good, err := posthaste.IDs(f.memory.Send(f.ctx, posthaste.Message{Queue: q, Payload: 3, Codec: tallyCodec{}}, posthaste.Message{Queue: q, Payload: 4}))
			f.must(err)
			bad, err := posthaste.IDs(f.memory.Send(f.ctx, posthaste.Message{Queue: q, Payload: 6, Codec: tallyCodec{}},
				posthaste.Message{Queue: q, Payload: []byte("7"), ContentType: "x/unknown"}))
			f.must(err)
			f.nowState(posthaste.StateDone, good...)
			f.nowState(posthaste.StateDead, bad...)
			for i, want := range []string{"too many", `no codec for content type "x/unknown"`} {
				if a := f.state(bad[i]).Attempts; len(a) != 1 || !strings.Contains(a[0].Error, want) {
					f.Errorf("%s: %+v, want one attempt that says %q", q, a, want)
				}
			}
		}
		if want := (map[string]int{"q x/tally 3": 1, "q application/json 4": 1, "batches x/tally 3": 1, "batches application/json 4": 1}); fmt.Sprint(got) != fmt.Sprint(want) {
			f.Errorf("handled were %v", got)
		}
		w := worker.New(f.memory, worker.Config{Codecs: []posthaste.Codec{nil}})
		worker.HandleRaw(w, queue, f.seen.handle)
		if err := w.Run(f.ctx); posthaste.CodeOf(err) != posthaste.CodeInvalid {
			f.Errorf("a codec that is nil: %v", err)
		}
	})
}

// Each call with several messages is told of once, when the last of them is settled.
func TestBatchesAreTold(t *testing.T) {
	inBubble(t, quick(), func(f *fixture) {
		sent := f.send(queue, 100)
		f.run(f.memory, worker.Config{}, func(w *worker.Worker) {
			worker.HandleBatch(w, queue, func(_ context.Context, batch []posthaste.Delivery[int]) []error {
				errs := make([]error, len(batch))
				for i, d := range batch {
					if d.Payload == 3 {
						errs[i] = posthaste.Permanent(errors.New("never"))
					}
				}
				time.Sleep(time.Millisecond)
				return errs
			}, worker.WithBatchSize(30))
		})
		f.until("all batches are told", func() bool { return f.seen.told(posthaste.EventBatch, "") >= len(sent) })
		f.seen.mu.Lock()
		defer f.seen.mu.Unlock()
		count, failed := 0, 0
		for _, e := range f.seen.events {
			if e.Kind != posthaste.EventBatch {
				continue
			}
			count, failed = count+e.Count, failed+e.Failed
			if e.Duration != time.Millisecond || e.Claim != 0 || e.Settle != 0 || e.Total != e.Duration || e.Queue != queue || e.Count > 30 {
				f.Errorf("told %+v", e)
			}
		}
		if count != len(sent) || failed != 1 {
			f.Errorf("%d messages and %d failed, of %d", count, failed, len(sent))
		}
	})
}

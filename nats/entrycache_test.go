package nats

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// What a watch has missed, the next one finds.
func TestNextWatchFindsMissedRemovals(t *testing.T) {
	t.Parallel()
	ctx, a, _ := two(t)
	_, err := a.CreateToken(ctx, posthaste.Token{Name: "real", Scopes: []posthaste.Scope{posthaste.ScopeSend}})
	must(t, err)
	must(t, a.tokens.fresh(ctx))
	a.tokens.learn("ghost", 1, &storedToken{Name: "ghost"})
	a.queues.learn("ghost", 1, &queue{Name: "ghost", No: 77, revision: 1})
	watching, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { a.tokens.watch(watching) })
	all.Go(func() { _ = a.watchOnce(watching, func() {}) })
	until(t, ctx, "the token is forgotten", func() bool { is, _ := a.tokens.known("ghost"); return is == nil })
	until(t, ctx, "the queue is forgotten", func() bool { return a.queues.known("ghost") == nil && a.queues.numbered(77) == nil })
	end()
	all.Wait()
	if is, _ := a.tokens.known("real"); is == nil || a.queues.known("jobs") == nil {
		t.Error("what exists was forgotten, too")
	}
}

// A listing waits until the watch has told all that was stored before.
func TestListingsWaitForTheWatch(t *testing.T) {
	t.Parallel()
	ctx, a, _ := two(t)
	_, err := a.tokens.put(ctx, "x", &storedToken{Name: "x"}, 0)
	must(t, err)
	var late entryCache[storedToken]
	late.init(a.tokens.prefix)
	late.bucket = a.tokens.bucket
	soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = late.freshAll(soon)
	wantCode(t, "without a watch", err, posthaste.CodeUnavailable)
	watching, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { late.watch(watching) })
	if found, err := late.freshAll(ctx); err != nil || found["x"] == nil {
		t.Errorf("with a watch there are %+v, %v", found, err)
	}
	end()
	all.Wait()
}

// A process reads what others have written before, and changes nothing that they have changed.
func TestShelvesAgree(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	cachesAgree(t, ctx, a, b)
}

func cachesAgree(t *testing.T, ctx context.Context, a, b *Engine) {
	var all sync.WaitGroup
	for _, e := range []*Engine{a, b} {
		for range 20 {
			all.Go(func() {
				_, err := e.schedules.change(ctx, "n", func(was *schedule) (*schedule, error) {
					next := &schedule{}
					if was != nil {
						*next = *was
					}
					next.Sent++
					return next, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	for i := range 20 {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		_, err := from.schedules.change(ctx, "n", func(was *schedule) (*schedule, error) {
			next := *was
			next.Sent++
			return &next, nil
		})
		must(t, err)
		if found, err := to.schedules.freshAll(ctx); err != nil || found["n"] == nil || found["n"].Sent != int64(41+i) {
			t.Fatalf("after %d changes the other process has %+v, %v", 41+i, found["n"], err)
		}
	}
	for i := range 10 {
		name := strconv.Itoa(i)
		_, err := a.schedules.put(ctx, name, &schedule{Name: name}, 0)
		must(t, err)
		_, err = b.schedules.change(ctx, name, func(*schedule) (*schedule, error) { return nil, nil })
		must(t, err)
		if found, err := a.schedules.freshAll(ctx); err != nil || len(found) != 1 {
			t.Fatalf("after a removal there are %+v, %v", found, err)
		}
		if _, err := a.schedules.put(ctx, name, &schedule{Name: name}, 0); err != nil {
			t.Errorf("an entry that was removed cannot be made again: %v", err)
		}
		if _, err := b.schedules.put(ctx, name, &schedule{Name: name}, 0); !conflicts(err) {
			t.Errorf("an entry was made twice: %v", err)
		}
		_, err = b.schedules.change(ctx, name, func(*schedule) (*schedule, error) { return nil, nil })
		must(t, err)
	}
	if all := b.schedules.knownAll(); len(all) != 1 || all["n"] == nil {
		t.Errorf("in the end there are %+v", all)
	}
}

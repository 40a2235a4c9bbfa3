package nats

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
)

// bucket is the part of the store that holds entries.
type bucket struct {
	jetstream.KeyValue
	// last returns the last revision of the keys that begin with a prefix, as the leader has it.
	last func(ctx context.Context, prefix string) (uint64, error)
	// goes runs something until the engine is closed.
	goes func(f func(ctx context.Context))
	// fault returns the error of a call that failed.
	fault func(error) error
}

// shelf keeps the entries of the store whose keys begin with a prefix, as a watch tells them. Names
// are those of the rest of the key.
type shelf[T any] struct {
	prefix string
	bucket bucket // set by keep
	mu     sync.Mutex
	all    map[string]shelved[T]
	seen   uint64        // the watch has told every revision up to this one
	moved  chan struct{} // closed when seen grows
	kept   sync.Once
}

// shelved is an entry. A removed one has no value, and is kept until the watch has told the removal.
type shelved[T any] struct {
	is       *T
	revision uint64
}

const (
	// watchLife is how long one watch lasts. The next one begins with all entries, so that a removal
	// that was missed is found. Markers of removals are kept for longer (removalKept).
	watchLife   = time.Hour
	removalKept = 24 * time.Hour
	watchAgain  = 200 * time.Millisecond
	// tellTimeout bounds a wait for the watch.
	tellTimeout = 5 * time.Second
	// changeTries bounds the repetitions because of concurrent changes of an entry.
	changeTries = 1000
)

func (s *shelf[T]) init(prefix string) {
	s.prefix, s.all, s.moved = prefix, map[string]shelved[T]{}, make(chan struct{})
}

// keep keeps the shelf up to date until the engine is closed, and returns once it has all entries.
func (s *shelf[T]) keep(ctx context.Context, b bucket) error {
	s.kept.Do(func() {
		s.bucket = b
		b.goes(func(ctx context.Context) {
			for ctx.Err() == nil {
				s.watch(ctx)
				pausesFor(ctx, watchAgain)
			}
		})
	})
	return s.fresh(ctx)
}

// watch takes entries until the watch ends.
func (s *shelf[T]) watch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, watchLife)
	defer cancel()
	watch, err := s.bucket.Watch(ctx, s.prefix+">")
	if err != nil {
		return
	}
	defer func() { _ = watch.Stop() }()
	told, first := map[string]bool{}, true
	for {
		select {
		case <-ctx.Done():
			return
		case entry, more := <-watch.Updates():
			switch {
			case !more:
				return
			case entry != nil:
				s.tell(entry)
				if first {
					told[strings.TrimPrefix(entry.Key(), s.prefix)] = true
				}
			case first:
				first = false
				s.prune(told)
			}
		}
	}
}

// tell takes an entry from the watch.
func (s *shelf[T]) tell(entry jetstream.KeyValueEntry) {
	var is *T
	if entry.Operation() == jetstream.KeyValuePut {
		is = new(T)
		if json.Unmarshal(entry.Value(), is) != nil {
			is = nil
		}
	}
	s.learn(strings.TrimPrefix(entry.Key(), s.prefix), entry.Revision(), is)
	s.mu.Lock()
	defer s.mu.Unlock()
	if entry.Revision() > s.seen {
		s.seen = entry.Revision()
		close(s.moved)
		s.moved = make(chan struct{})
		maps.DeleteFunc(s.all, func(_ string, x shelved[T]) bool { return x.is == nil && x.revision <= s.seen })
	}
}

// prune forgets the entries that a watch, which has told all, has not told.
func (s *shelf[T]) prune(told map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.all, func(name string, x shelved[T]) bool { return !told[name] && x.revision <= s.seen })
}

// learn takes a revision of an entry, nil if it was removed.
func (s *shelf[T]) learn(name string, revision uint64, is *T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[name].revision < revision {
		s.all[name] = shelved[T]{is: is, revision: revision}
	}
}

// keepHere replaces an entry for this process alone, until its next revision.
func (s *shelf[T]) keepHere(name string, is *T, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[name].revision <= revision {
		s.all[name] = shelved[T]{is: is, revision: revision}
	}
}

// known returns an entry as far as this process knows it, or nil, and its revision.
func (s *shelf[T]) known(name string) (is *T, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[name]
	return x.is, x.revision
}

// knownAll returns the entries that this process knows.
func (s *shelf[T]) knownAll() map[string]*T {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]*T, len(s.all))
	for name, x := range s.all {
		if x.is != nil {
			all[name] = x.is
		}
	}
	return all
}

// fresh waits until this process knows what the store has now.
func (s *shelf[T]) fresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	last, err := s.bucket.last(ctx, s.prefix)
	if err != nil {
		return err
	}
	for {
		s.mu.Lock()
		seen, moved := s.seen, s.moved
		s.mu.Unlock()
		if seen >= last {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return unavailable("NATS does not tell the entries "+s.prefix, ctx.Err())
		}
	}
}

// freshAll returns the entries that the store has, by name.
func (s *shelf[T]) freshAll(ctx context.Context) (map[string]*T, error) {
	if err := s.fresh(ctx); err != nil {
		return nil, err
	}
	return s.knownAll(), nil
}

// read reads an entry from the store, nil if the store has none.
func (s *shelf[T]) read(ctx context.Context, name string) (is *T, revision uint64, err error) {
	entry, err := s.bucket.Get(ctx, s.prefix+name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, s.bucket.fault(err)
	}
	is = new(T)
	if err := json.Unmarshal(entry.Value(), is); err != nil {
		return nil, 0, err
	}
	s.learn(name, entry.Revision(), is)
	return is, entry.Revision(), nil
}

// errSame says that an entry needs no change.
var errSame = errors.New("no change")

// change changes an entry in the store: change gets it, nil if the store has none, and returns the
// one that replaces it, nil to remove it. It is called again if another process was faster. With errSame, or
// any other error, nothing is changed.
func (s *shelf[T]) change(ctx context.Context, name string, change func(was *T) (*T, error)) (*T, error) {
	for range changeTries {
		was, revision, err := s.read(ctx, name)
		if err != nil {
			return nil, err
		}
		next, err := change(was)
		if errors.Is(err, errSame) || err == nil && next == nil && was == nil {
			return was, nil
		}
		if err != nil {
			return nil, err
		}
		_, err = s.put(ctx, name, next, revision)
		if !conflicts(err) {
			return next, s.bucket.fault(err)
		}
	}
	return nil, unavailable("other processes change "+s.prefix+name+" at this moment", nil)
}

// put stores an entry, nil to remove it, if the store has that revision: 0 if it has none. It returns
// the new revision.
func (s *shelf[T]) put(ctx context.Context, name string, is *T, revision uint64) (uint64, error) {
	if is == nil {
		err := s.bucket.Purge(ctx, s.prefix+name, jetstream.LastRevision(revision), jetstream.PurgeTTL(removalKept))
		if err == nil {
			s.learn(name, revision+1, nil) // its revision is at least this
		}
		return revision + 1, err
	}
	body, err := json.Marshal(is)
	if err != nil {
		return 0, err
	}
	if revision == 0 {
		revision, err = s.bucket.Create(ctx, s.prefix+name, body)
	} else {
		revision, err = s.bucket.Update(ctx, s.prefix+name, body, revision)
	}
	if err == nil {
		s.learn(name, revision, is)
	}
	return revision, err
}

// conflicts reports whether another process has changed an entry.
func conflicts(err error) bool {
	return errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch)
}

// opsLimit returns the limit of a listing, by default 100.
func opsLimit(limit int, what string) (int, error) {
	if limit < 0 || limit > 1000 {
		return 0, posthaste.Invalidf("limit", "a call lists 1 to 1000 %s, not %d", what, limit)
	}
	if limit == 0 {
		limit = 100
	}
	return limit, nil
}

// sortedBy returns the values of a map in the order of a number.
func sortedBy[T any](all map[string]*T, by func(*T) int64) []*T {
	return slices.SortedFunc(maps.Values(all), func(a, b *T) int {
		switch x, y := by(a), by(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
}

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
)

// bucket is the store with the functions of the engine that a cache needs.
type bucket struct {
	jetstream.KeyValue
	// last returns the last revision of the keys that begin with a prefix, as the leader has it.
	last func(ctx context.Context, prefix string) (uint64, error)
	// runInBackground runs something until the engine is closed.
	runInBackground func(f func(ctx context.Context))
	// readError returns the error of a call that failed.
	readError func(error) error
}

// entryCache caches the entries of the store whose keys begin with a prefix, and a watch keeps it up to date.
// The name of an entry is its key without the prefix.
type entryCache[T any] struct {
	prefix  string
	bucket  bucket // set by startWatch
	mu      sync.Mutex
	all     map[string]cachedEntry[T]
	seen    uint64        // the watch has reported every revision up to this one
	moved   chan struct{} // closed when seen grows
	started sync.Once
}

// cachedEntry is an entry. A removed one has no value, and is kept until the watch reports its removal.
type cachedEntry[T any] struct {
	value    *T
	revision uint64
}

const (
	// watchLife is how long one watch lasts. The next one begins with all entries, so that a missed
	// removal is found. The store keeps markers of removals for longer: removalKept.
	watchLife   = time.Hour
	removalKept = 24 * time.Hour
	watchAgain  = 200 * time.Millisecond
	// tellTimeout bounds a wait for the watch.
	tellTimeout = 5 * time.Second
	// changeTries bounds the repetitions because of concurrent changes of an entry.
	changeTries = 1000
)

func (s *entryCache[T]) init(prefix string) {
	s.prefix, s.all, s.moved = prefix, map[string]cachedEntry[T]{}, make(chan struct{})
}

// startWatch starts to keep the cache up to date until the engine is closed, unless it was started, and
// returns once the cache has all entries.
func (s *entryCache[T]) startWatch(ctx context.Context, b bucket) error {
	s.started.Do(func() {
		s.bucket = b
		b.runInBackground(func(ctx context.Context) {
			for ctx.Err() == nil {
				s.watch(ctx)
				sleepFor(ctx, watchAgain)
			}
		})
	})
	return s.fresh(ctx)
}

// watch caches the entries that one watch reports, until that ends.
func (s *entryCache[T]) watch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, watchLife)
	defer cancel()
	watch, err := s.bucket.Watch(ctx, s.prefix+">")
	if err != nil {
		return
	}
	defer func() { _ = watch.Stop() }()
	reported, first := map[string]bool{}, true
	for {
		select {
		case <-ctx.Done():
			return
		case entry, more := <-watch.Updates():
			switch {
			case !more:
				return
			case entry != nil:
				s.learnEntry(entry)
				if first {
					reported[strings.TrimPrefix(entry.Key(), s.prefix)] = true
				}
			case first:
				first = false
				s.prune(reported)
			}
		}
	}
}

// learnEntry caches an entry that the watch has reported.
func (s *entryCache[T]) learnEntry(entry jetstream.KeyValueEntry) {
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
		maps.DeleteFunc(s.all, func(_ string, x cachedEntry[T]) bool { return x.value == nil && x.revision <= s.seen })
	}
}

// prune forgets the entries that a watch did not report, which has reported all.
func (s *entryCache[T]) prune(reported map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.all, func(name string, x cachedEntry[T]) bool { return !reported[name] && x.revision <= s.seen })
}

// learn caches a revision of an entry, nil if it was removed, unless a newer one is cached.
func (s *entryCache[T]) learn(name string, revision uint64, is *T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[name].revision < revision {
		s.all[name] = cachedEntry[T]{value: is, revision: revision}
	}
}

// setLocally replaces an entry in this process alone, until its next revision.
func (s *entryCache[T]) setLocally(name string, is *T, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[name].revision <= revision {
		s.all[name] = cachedEntry[T]{value: is, revision: revision}
	}
}

// known returns a cached entry, or nil, and its revision.
func (s *entryCache[T]) known(name string) (is *T, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[name]
	return x.value, x.revision
}

// knownAll returns all cached entries by name.
func (s *entryCache[T]) knownAll() map[string]*T {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]*T, len(s.all))
	for name, x := range s.all {
		if x.value != nil {
			all[name] = x.value
		}
	}
	return all
}

// fresh waits until the cache has all revisions that the store has now.
func (s *entryCache[T]) fresh(ctx context.Context) error {
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

// freshAll is knownAll after fresh.
func (s *entryCache[T]) freshAll(ctx context.Context) (map[string]*T, error) {
	if err := s.fresh(ctx); err != nil {
		return nil, err
	}
	return s.knownAll(), nil
}

// read reads an entry from the store, nil if the store has none.
func (s *entryCache[T]) read(ctx context.Context, name string) (is *T, revision uint64, err error) {
	entry, err := s.bucket.Get(ctx, s.prefix+name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, s.bucket.readError(err)
	}
	is = new(T)
	if err := json.Unmarshal(entry.Value(), is); err != nil {
		return nil, 0, err
	}
	s.learn(name, entry.Revision(), is)
	return is, entry.Revision(), nil
}

// errSame is what a change returns if the entry needs no change.
var errSame = errors.New("no change")

// change replaces an entry in the store. The function change gets it, nil if the store has none, and
// returns its replacement, nil to remove it. It is called again if another process was faster. If it
// returns errSame or another error, nothing is stored.
func (s *entryCache[T]) change(ctx context.Context, name string, change func(was *T) (*T, error)) (*T, error) {
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
			return next, s.bucket.readError(err)
		}
	}
	return nil, unavailable("other processes change "+s.prefix+name+" at this moment", nil)
}

// put stores an entry, nil to remove it, if its revision in the store is still revision (0 for a new entry).
// It returns the new revision.
func (s *entryCache[T]) put(ctx context.Context, name string, is *T, revision uint64) (uint64, error) {
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

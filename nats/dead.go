package nats

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/posthaste-mq/posthaste"
)

// deadMost is the maximum of dead letters that one call reads.
const deadMost = 3000

// letter is a dead letter. readLetters reads its entry: seq, meta and body.
type letter struct {
	id           posthaste.MessageID
	q            *queue
	subscription string
	seq          uint64
	meta         *meta
	body         []byte
}

func (l *letter) subject() string {
	return l.q.subjects.under("d", subjectToken(l.subscription), l.id.String())
}

// read sets the fields of the letter that are in its entry.
func (l *letter) read(m *rawEntry) error {
	x, body, err := decode(m.Header, m.Data)
	l.meta, l.seq, l.body = x, m.Sequence, body
	return err
}

func (l *letter) public() posthaste.DeadLetter {
	m := l.meta
	return posthaste.DeadLetter{ID: l.id, Queue: l.q.Name, Subscription: l.subscription, Key: m.Key, Kind: m.Kind, Headers: m.Headers, Reference: m.Reference, Terms: m.Terms,
		ContentType: m.Type, Payload: l.body, CreatedAt: fromMicros(m.At), DiedAt: fromMicros(m.DiedAt), Error: m.Error, Attempts: posthaste.NewestCheckpoint(slices.Clone(m.Story))}
}

// DeadLetters implements [posthaste.MessageAdmin]. It reads up to 3,000 dead letters.
func (e *Engine) DeadLetters(ctx context.Context, f posthaste.DeadLetterFilter) (page posthaste.Page[posthaste.DeadLetter], err error) {
	limit, err := listLimit(f.Limit, "dead letters")
	if err != nil {
		return page, err
	}
	letters, cutAt, err := e.letters(ctx, &f, limit)
	if err != nil {
		return page, err
	}
	for _, l := range letters {
		page.Items = append(page.Items, l.public())
	}
	return posthaste.NewPage(page.Items, limit, cutAt, func(d *posthaste.DeadLetter) posthaste.MessageID { return d.ID }), nil
}

// letters returns up to limit dead letters that match, newest first, and more if the last message has several.
// cutAt is the id at which it stopped before the end, or 0.
func (e *Engine) letters(ctx context.Context, f *posthaste.DeadLetterFilter, limit int) (found []*letter, cutAt posthaste.MessageID, err error) {
	all, err := e.possibleLetters(ctx, f)
	if err != nil {
		return nil, 0, err
	}
	if f.Before != 0 {
		all = slices.DeleteFunc(all, func(l *letter) bool { return l.id >= f.Before })
	}
	slices.SortFunc(all, func(a, b *letter) int {
		return cmp.Or(cmp.Compare(b.id, a.id), cmp.Compare(a.subscription, b.subscription))
	})
	for at := 0; at < len(all); {
		part := all[at:min(at+200, len(all))]
		if err := e.readLetters(ctx, part); err != nil {
			return nil, 0, err
		}
		for _, l := range part {
			if n := len(found); n >= limit && found[n-1].id != l.id {
				return found, found[n-1].id, nil
			}
			if at++; l.meta != nil && matches(l.meta, f) {
				found = append(found, l)
			}
			if at >= deadMost && at < len(all) && all[at].id != l.id {
				return found, l.id, nil
			}
		}
	}
	return found, 0, nil
}

// possibleLetters returns the dead letters that match by queue, subscription and ids. It does not read their
// entries, because these are in their subjects.
func (e *Engine) possibleLetters(ctx context.Context, f *posthaste.DeadLetterFilter) (all []*letter, err error) {
	if f.Subscription != "" && f.Queue == "" {
		return nil, posthaste.Invalidf("subscription", "subscription needs a queue")
	}
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	queues := e.queues.listed()
	if f.Queue != "" {
		q, err := e.queue(ctx, f.Queue)
		if err == nil && f.Subscription != "" {
			q, _, err = e.findSubscription(ctx, posthaste.QueueRef{Queue: f.Queue, Subscription: f.Subscription})
		}
		if err != nil {
			return nil, err
		}
		queues = []*queue{q}
	}
	if f.IDs != nil {
		return e.lettersOf(ctx, f, queues)
	}
	for _, q := range queues {
		filter := q.subjects.under("d.>")
		if f.Subscription != "" {
			filter = q.subjects.under("d", subjectToken(f.Subscription), "*")
		}
		subjects, err := e.subjectsUnder(ctx, q.stream, filter)
		if err != nil {
			return nil, err
		}
		for _, s := range subjects {
			sub, id, _ := strings.Cut(strings.TrimPrefix(s, q.subjects.under("d.")), ".")
			if q.subscription(nameOf(sub)) == nil {
				continue // it died after its subscription was removed, and no consumer would get it
			}
			if n, err := strconv.ParseInt(id, 10, 64); err == nil {
				all = append(all, &letter{id: posthaste.MessageID(n), q: q, subscription: nameOf(sub)})
			}
		}
	}
	return all, nil
}

// lettersOf returns the possible dead letters with the ids of a filter, one for each subscription.
func (e *Engine) lettersOf(ctx context.Context, f *posthaste.DeadLetterFilter, queues []*queue) (all []*letter, err error) {
	for _, id := range slices.Compact(slices.Sorted(slices.Values(f.IDs))) {
		q, err := e.queueOfMessage(ctx, id)
		if posthaste.CodeOf(err) == posthaste.CodeNotFound || err == nil && f.Queue != "" && q.Name != queues[0].Name {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, sub := range q.Subscriptions {
			if f.Subscription == "" || f.Subscription == sub.Name {
				all = append(all, &letter{id: id, q: q, subscription: sub.Name})
			}
		}
	}
	return all, nil
}

// readLetters reads the entries of letters. Letters that are no longer dead keep a nil meta.
func (e *Engine) readLetters(ctx context.Context, letters []*letter) error {
	subjects := map[string][]string{} // by stream
	for _, l := range letters {
		subjects[l.q.stream] = append(subjects[l.q.stream], l.subject())
	}
	for stream, some := range subjects {
		found, err := e.lastOf(ctx, stream, some)
		if err != nil {
			return err
		}
		for _, l := range letters {
			if m := found[l.subject()]; l.q.stream == stream && m != nil && m.Header.Get(headerReplayed) == "" {
				if err := l.read(m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// matches reports whether the content of a dead letter matches.
func matches(m *meta, f *posthaste.DeadLetterFilter) bool {
	for _, x := range [...]struct{ want, is string }{{f.Kind, m.Kind}, {f.Key, m.Key}, {f.Reference, m.Reference}} {
		if x.want != "" && x.want != x.is {
			return false
		}
	}
	died := fromMicros(m.DiedAt)
	return (f.Term == "" || slices.Contains(m.Terms, f.Term)) && (f.Error == "" || f.MatchesError(m.Error)) &&
		!died.Before(f.DiedFrom) && (f.DiedBefore.IsZero() || died.Before(f.DiedBefore))
}

// chosenLetters returns the dead letters to act on, and the id at which the next page begins.
func (e *Engine) chosenLetters(ctx context.Context, f *posthaste.DeadLetterFilter) (all []*letter, next posthaste.MessageID, err error) {
	if err := f.CheckChoice(); err != nil {
		return nil, 0, err
	}
	limit, err := listLimit(f.Limit, "dead letters")
	if err != nil {
		return nil, 0, err
	}
	if f.IDs != nil {
		limit = 1 << 30
	}
	all, next, err = e.letters(ctx, f, limit)
	if n := len(all); err == nil && n >= limit {
		next = all[n-1].id
	}
	return all, next, err
}

// actOnEach calls act for letters, 16 at a time. It returns the ids of those for which act reports true, and the
// first error.
func (e *Engine) actOnEach(ctx context.Context, letters []*letter, act func(context.Context, *letter) (bool, error)) (ids []posthaste.MessageID, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan bool, 16)
	for _, l := range letters {
		slots <- true
		all.Go(func() {
			defer func() { <-slots }()
			did, failed := act(ctx, l)
			mu.Lock()
			defer mu.Unlock()
			if did {
				ids = append(ids, l.id)
			}
			err = cmp.Or(err, failed)
		})
	}
	all.Wait()
	return slices.Compact(slices.Sorted(slices.Values(ids))), err
}

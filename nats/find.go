package nats

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
)

// location is where a message is for one subscription.
type location struct {
	rank     rank
	state    posthaste.State
	meta     *meta
	body     []byte
	subject  string
	seq      uint64
	at       time.Time // when the entry was stored
	attempts []posthaste.Attempt
}

// rank orders the locations in which a message is found for one subscription: the lowest rank counts. An
// entry for all subscriptions stays until all have acknowledged it, so it has the highest ranks.
type rank int

const (
	rankHeld     rank = iota // by this process
	rankRetry                // on s.<id>.<sub>
	rankCopy                 // on r.<sub>.<lane>
	rankDead                 // on d.<sub>.<id>
	rankOver                 // in the log
	rankShared               // on q.<priority> or o.<part>
	rankSchedule             // on s.<id>
)

// lookup is a message with the locations in which it was found.
type lookup struct {
	q         *queue
	id        posthaste.MessageID
	locations map[string]*location // by subscription
	shared    *location            // the entry for all subscriptions, or nil
	kept      map[string]*meta     // of an ordered queue: the message after its attempts, by subscription
}

func noMessage(id posthaste.MessageID) error {
	return notFound("id", "message %d is unknown, or its space was reclaimed", id)
}

// queueOfMessage returns the queue of a message by its id.
func (e *Engine) queueOfMessage(ctx context.Context, id posthaste.MessageID) (*queue, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	no := queueNumber(id)
	if id <= 0 || no == 0 {
		return nil, noMessage(id)
	}
	if q := e.queues.numbered(no); q != nil && q.Ready {
		return q, nil
	}
	entry, err := e.kv.Get(ctx, "number."+strconv.Itoa(no))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, noMessage(id)
	}
	if err != nil {
		return nil, e.readError(err)
	}
	q, err := e.freshQueue(ctx, string(entry.Value()))
	if code := posthaste.CodeOf(err); code == posthaste.CodeNotFound || code == posthaste.CodeInvalid || err == nil && q.No != no {
		return nil, noMessage(id)
	}
	return q, err
}

// findAgain is how often a message is looked for before it is not found: it may move meanwhile.
const findAgain = 3

// find finds a message for all its subscriptions.
func (e *Engine) find(ctx context.Context, id posthaste.MessageID) (*lookup, error) {
	q, err := e.queueOfMessage(ctx, id)
	if err != nil {
		return nil, err
	}
	for range findAgain {
		s, err := e.findOnce(ctx, q, id)
		if err != nil || len(s.locations) > 0 {
			return s, err
		}
	}
	return nil, noMessage(id)
}

func (e *Engine) findOnce(ctx context.Context, q *queue, id posthaste.MessageID) (*lookup, error) {
	s := &lookup{q: q, id: id, locations: map[string]*location{}}
	e.findHeld(s)
	if err := e.findAt(ctx, s, q.stream, q.subjects.under("s", id.String())); err != nil {
		return nil, err
	}
	for _, sub := range q.Subscriptions {
		if err := e.findAt(ctx, s, q.stream, q.subjects.under("s", id.String(), subjectToken(sub.Name))); err != nil {
			return nil, err
		}
	}
	if !s.complete() {
		if err := e.findWaiting(ctx, s); err != nil {
			return nil, err
		}
	}
	for _, sub := range q.Subscriptions {
		if err := e.findAt(ctx, s, q.stream, q.subjects.under("d", subjectToken(sub.Name), id.String())); err != nil {
			return nil, err
		}
		if err := e.findAt(ctx, s, e.prefix+"-log", e.outcomeSubject(id, sub.Name)); err != nil {
			return nil, err
		}
	}
	e.findHeld(s) // it may have been handed out meanwhile
	return s, e.spreadShared(ctx, s)
}

// complete reports whether each subscription has a location already, so that the waiting messages need not be
// scanned.
func (s *lookup) complete() bool {
	if s.shared != nil {
		return true
	}
	for _, sub := range s.q.Subscriptions {
		if s.locations[sub.Name] == nil {
			return false
		}
	}
	return true
}

// findAt adds the last entry on a subject, if there is one.
func (e *Engine) findAt(ctx context.Context, s *lookup, stream, subject string) error {
	m, err := e.lastOn(ctx, stream, subject)
	if err != nil || m == nil {
		return err
	}
	e.addEntry(s, m)
	return nil
}

// findHeld adds the deliveries of this process.
func (e *Engine) findHeld(s *lookup) {
	for _, d := range e.holding.ofMessage(s.id) {
		e.addHeld(s, d)
	}
}

func (e *Engine) addHeld(s *lookup, d *held) {
	p := &location{rank: rankHeld, state: posthaste.StateRunning, meta: d.meta, body: d.body, seq: d.seq}
	switch once := d.q.Options.Mode == posthaste.AtMostOnce; {
	case once:
		p.state = posthaste.StateHandedOut
	case uptime() > e.holding.leaseOf(d):
		return // the server redelivers it
	}
	p.attempts = append(slices.Clone(d.meta.Story), e.holding.attempt(d, e.workerName(d)))
	s.addLocation(d.sub.Name, p)
}

// findWaiting scans the waiting entries: the newest, and if there are more, the oldest. Each scan is bounded,
// see scan.
func (e *Engine) findWaiting(ctx context.Context, s *lookup) error {
	take := func(m *rawEntry) { e.addIfOwn(s, m) }
	for _, filter := range s.q.waitFilters() {
		older, err := e.newest(ctx, s.q.stream, filter, take)
		if err != nil {
			return err
		}
		if older {
			if err := e.scan(ctx, s.q.stream, filter, 1, take); err != nil {
				return err
			}
		}
	}
	if !s.q.Options.Ordered {
		return nil
	}
	return e.scan(ctx, s.q.stream, s.q.subjects.under("n", "*", s.id.String(), "kept"), 1, s.addKept)
}

// waitFilters select the entries that wait.
func (q *queue) waitFilters() []string {
	first := "q.*"
	if q.Options.Ordered {
		first = "o.*"
	}
	return []string{q.subjects.under(first), q.subjects.under("r.*.*")}
}

// addIfOwn adds an entry if it is one of the message.
func (e *Engine) addIfOwn(s *lookup, m *rawEntry) {
	if x, _, err := decode(m.Header, m.Data); err == nil && x.ID == s.id {
		e.addEntry(s, m)
	}
}

// addEntry adds the location of an entry of the message.
func (e *Engine) addEntry(s *lookup, m *rawEntry) {
	x, body, err := decode(m.Header, m.Data)
	if err != nil {
		return
	}
	p := &location{meta: x, body: body, subject: m.Subject, seq: m.Sequence, at: m.Time, attempts: x.Story}
	if strings.HasPrefix(m.Subject, e.prefix+".log.out.") {
		p.rank, p.state = rankOver, posthaste.State(m.Header.Get(headerOutcome))
		s.addLocation(nameOf(m.Subject[strings.LastIndex(m.Subject, ".")+1:]), p)
		return
	}
	tokens := strings.Split(strings.TrimPrefix(m.Subject, string(s.q.subjects)), ".")
	late := fromMicros(x.Due).After(e.clock.now())
	switch {
	case (tokens[0] == "q" || tokens[0] == "o") && len(tokens) == 2:
		p.rank, p.state = rankShared, posthaste.StateReady
		s.addShared(p)
	case tokens[0] == "s" && len(tokens) == 2:
		p.rank, p.state = rankSchedule, posthaste.StateReady
		if late {
			p.state = posthaste.StateScheduled
		}
		s.addShared(p)
	case tokens[0] == "s" && len(tokens) == 3:
		p.rank, p.state = rankRetry, x.waitingState(late)
		s.addLocation(nameOf(tokens[2]), p)
	case tokens[0] == "r" && len(tokens) == 3:
		p.rank, p.state = rankCopy, x.waitingState(false)
		s.addLocation(nameOf(tokens[1]), p)
	case tokens[0] == "d" && len(tokens) == 3:
		p.rank, p.state = rankDead, posthaste.StateDead
		s.addLocation(nameOf(tokens[1]), p)
	}
}

// addKept adds the fields that an ordered queue stores beside a message, see kept.
func (s *lookup) addKept(m *rawEntry) {
	var k kept
	if err := json.Unmarshal(m.Data, &k); err != nil || k.Meta == nil {
		return
	}
	if s.kept == nil {
		s.kept = map[string]*meta{}
	}
	s.kept[nameOf(strings.Split(strings.TrimPrefix(m.Subject, string(s.q.subjects)), ".")[1])] = k.Meta
}

// waitingState returns the state of a message that was handed out before and waits.
func (m *meta) waitingState(late bool) posthaste.State {
	switch {
	case m.Failures > 0 || m.Losses > 0:
		return posthaste.StateRetrying
	case late:
		return posthaste.StateScheduled
	}
	return posthaste.StateReady
}

// addLocation adds a location for a subscription, unless one with a lower rank or a newer entry is known.
func (s *lookup) addLocation(subscription string, p *location) {
	if s.q.subscription(subscription) == nil {
		return
	}
	if was := s.locations[subscription]; was == nil || p.rank < was.rank || p.rank == was.rank && p.seq > was.seq {
		s.locations[subscription] = p
	}
}

// addShared adds an entry for all subscriptions.
func (s *lookup) addShared(p *location) {
	if s.shared == nil || p.rank < s.shared.rank {
		s.shared = p
	}
}

// spreadShared gives the subscriptions without a location that of the entry for all subscriptions.
func (e *Engine) spreadShared(ctx context.Context, s *lookup) error {
	return s.spreadShared(func(sub *subscription, lane int) (uint64, error) { return e.ackFloor(ctx, s.q, sub, lane) })
}

func (s *lookup) spreadShared(floor func(*subscription, int) (uint64, error)) error {
	if s.shared == nil {
		return nil
	}
	for i := range s.q.Subscriptions {
		sub := &s.q.Subscriptions[i]
		if s.locations[sub.Name] != nil || !sub.Filter.Passes(s.shared.meta.Kind, s.shared.meta.Headers) {
			continue
		}
		p := *s.shared
		if p.rank == rankShared {
			if sub.Name != posthaste.DefaultSubscription && sub.From != posthaste.FromOldest && p.at.Before(sub.CreatedAt) {
				continue // it was sent before
			}
			if len(s.q.Subscriptions) > 1 {
				lane, err := strconv.Atoi(p.subject[strings.LastIndex(p.subject, ".")+1:])
				if err != nil {
					continue
				}
				upTo, err := floor(sub, lane)
				if err != nil {
					return err
				}
				if p.seq <= upTo {
					p.rank, p.state = rankOver, posthaste.StateDone
				}
			}
			if m := s.kept[sub.Name]; m != nil && m.From == p.seq {
				p.meta, p.attempts, p.state = m, m.Story, m.waitingState(false)
			}
		}
		s.locations[sub.Name] = &p
	}
	return nil
}

// ackFloor returns the sequence up to which a subscription has acknowledged all entries.
func (e *Engine) ackFloor(ctx context.Context, q *queue, sub *subscription, lane int) (uint64, error) {
	c, err := e.js.Consumer(ctx, q.stream, q.consumer(sub.Name, lane))
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, e.readError(err)
	}
	return c.CachedInfo().AckFloor.Stream, nil
}

// info returns the message for operators.
func (s *lookup) info(now time.Time) (info posthaste.MessageInfo) {
	for _, sub := range s.q.Subscriptions {
		p := s.locations[sub.Name]
		if p == nil {
			continue
		}
		if m := p.meta; info.ID == 0 || info.Payload == nil && p.body != nil {
			info = posthaste.MessageInfo{ID: s.id, Queue: s.q.Name, Key: m.Key, Kind: m.Kind, Headers: m.Headers, Reference: m.Reference, Terms: m.Terms, ContentType: m.Type,
				Payload: p.body, CreatedAt: fromMicros(m.At), Options: m.own(), Subscriptions: info.Subscriptions}
		}
		state := posthaste.MessageState{Subscription: sub.Name, State: p.state, Attempts: posthaste.NewestCheckpoint(slices.Clone(p.attempts))}
		if due := fromMicros(p.meta.Due); p.rank == rankRetry || p.rank == rankSchedule {
			if due.After(now) {
				state.DueAt = due
			}
		}
		info.Subscriptions = append(info.Subscriptions, state)
	}
	if len(info.Payload) == 0 {
		info.Payload = nil
	}
	return info
}

// Message implements [posthaste.MessageAdmin]. A waiting message is looked for among the newest and the
// oldest 10,000. One that another process holds appears as ready.
func (e *Engine) Message(ctx context.Context, id posthaste.MessageID) (posthaste.MessageInfo, error) {
	s, err := e.find(ctx, id)
	if err != nil {
		return posthaste.MessageInfo{}, err
	}
	info := s.info(e.clock.now())
	if info.Payload != nil {
		info.Version = posthaste.VersionOf(&info)
	}
	return info, nil
}

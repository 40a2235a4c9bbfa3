package redis

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

// sendOptions are the options of a message in send.lua.
type sendOptions struct {
	Queue  int    `codec:"q,omitempty"`
	Delay  *int64 `codec:"d,omitempty"`
	Time   *int64 `codec:"t,omitempty"`
	Once   int    `codec:"k,omitempty"`
	Window int64  `codec:"w,omitempty"`
	Silent bool   `codec:"s,omitempty"`
	// Words are the words by which the message is found.
	Words  []string    `codec:"n,omitempty"`
	Key    string      `codec:"y,omitempty"`
	Unique *sendUnique `codec:"u,omitempty"`
	// Excluded are the letters of the subscriptions whose filters reject it.
	Excluded string `codec:"x,omitempty"`
}

// sendUnique is the unique key of a message in send.lua.
type sendUnique struct {
	Key      string `codec:"k"`
	At       int    `codec:"h"`
	Until    string `codec:"u,omitempty"`
	Replace  bool   `codec:"e,omitempty"`
	MaxDelay int64  `codec:"m,omitempty"`
	// Of is a dead letter, of which the message is an edited copy and which has the key.
	Of string `codec:"o,omitempty"`
}

// editedCopy is what an edited copy of a dead letter takes from it.
type editedCopy struct {
	letters string      // of the subscriptions that do not get the copy
	unique  *sendUnique // the unique key of the dead letter, nil if it has none
	before  string      // letters of the subscriptions that got a copy before; then no other is sent
}

// words returns the words of a message in the form of words.lua.
func words(m *posthaste.Message) (all []string) {
	if m.Reference != "" {
		all = append(all, referenceWord+m.Reference)
	}
	for _, term := range m.Terms {
		all = append(all, termWord+term)
	}
	return all
}

// The prefixes of words.
const referenceWord, termWord = "r", "t"

// sendHead are the options of a call of send.lua.
type sendHead struct {
	Numbers []string `codec:"n"`
	// Versions and Letters are those of the subscriptions of each queue, nil if no queue has
	// further ones.
	Versions []string `codec:"v,omitempty"`
	Letters  []string `codec:"l,omitempty"`
	Ended    []int    `codec:"z,omitempty"` // 1 if the default subscription of the queue has ended
	Looks    []int    `codec:"y,omitempty"`
	Aged     []int64  `codec:"a,omitempty"` // MaxAge of each queue in µs
	// Revisions are those of the options of each queue, nil if no queue's were ever changed.
	Revisions []string `codec:"w,omitempty"`
	Window    int64    `codec:"r,omitempty"`
	Digest    string   `codec:"g,omitempty"`
	// Schedule is the name of a schedule whose ticks these are, Before the queue's record of its
	// last tick, and Tick the last of these ticks in µs.
	Schedule string      `codec:"e,omitempty"`
	Before   string      `codec:"b,omitempty"`
	Tick     string      `codec:"j,omitempty"`
	Dead     string      `codec:"f,omitempty"` // the dead letter of which the message is an edited copy
	Without  string      `codec:"x,omitempty"` // letters of the subscriptions that do not get the copy
	of       string      // the queue of the schedule
	replayed *bool       // set to true if the request had been sent before
	copies   *editedCopy // nil unless the message is an edited copy
}

// Send implements [posthaste.Engine]. In a cluster it rejects messages to several queues,
// because a script cannot write to several slots.
func (e *Engine) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error) {
	return e.sendAll(ctx, sendHead{}, "", messages)
}

// SendOnce implements [posthaste.Engine]. In a cluster, the reply is stored in the
// queue's slot and the digest of the request in another one: see reserve.
func (e *Engine) SendOnce(ctx context.Context, r posthaste.Idempotency, messages ...posthaste.Message) (sent []posthaste.Sent, replayed bool, err error) {
	if err := r.Check(); err != nil {
		return nil, false, err
	}
	name := sha256.Sum256([]byte(fmt.Sprintf("%d:%s%s", len(r.Scope), r.Scope, r.Key)))
	head := sendHead{Window: max(1, r.Window.Milliseconds()), Digest: string(r.Digest), replayed: &replayed}
	sent, err = e.sendAll(ctx, head, e.keys.request(hex.EncodeToString(name[:])), messages)
	return sent, replayed, err
}

func (e *Engine) sendAll(ctx context.Context, head sendHead, request string, messages []posthaste.Message) ([]posthaste.Sent, error) {
	if len(messages) == 0 {
		return nil, ctx.Err()
	}
	for try := range 3 {
		sent, gone, err := e.send(ctx, head, request, messages)
		if try == 0 && posthaste.CodeOf(err) == posthaste.CodeTooLarge { // MaxPayload may have been raised
			if _, err := e.registry.read(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil || gone == nil {
			return sent, writeError(err)
		}
		if err := e.remake(ctx, gone); err != nil {
			return nil, err
		}
	}
	return nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "a queue is being dropped and created again", Hint: "try again"}
}

// reserve stores the digest of a request under its key, in a slot of its own, so that another
// request with the key is rejected even if it is for another queue. made reports whether it
// stored one. If the process is killed before it sends, the same request can be repeated, but
// no other can use the key.
func (e *Engine) reserve(ctx context.Context, request string, head sendHead) (made bool, err error) {
	before, err := e.client.SetArgs(ctx, request, head.Digest, goredis.SetArgs{Mode: "NX", Get: true, TTL: time.Duration(head.Window) * time.Millisecond}).Result()
	switch {
	case errors.Is(err, goredis.Nil):
		return true, nil
	case err != nil:
		return false, readError(err)
	case before != head.Digest:
		return false, keyReused()
	}
	return false, nil
}

func keyReused() error {
	return &posthaste.Error{Code: posthaste.CodeKeyReused, Field: "Idempotency-Key", Message: "the key was used for a different request",
		Hint: "use a new key for each request"}
}

// gone reports whether send.lua replied that a queue does not exist (any more).
func gone(reply any) bool {
	all, _ := reply.([]any)
	return len(all) == 2 && all[0] == "gone"
}

// send sends messages, or returns the queue whose keys do not exist (any more).
func (e *Engine) send(ctx context.Context, head sendHead, request string, messages []posthaste.Message) (sent []posthaste.Sent, missing *queue, err error) {
	s := sendCall{engine: e, head: head, places: map[string]int{}, args: make(arguments, 2, 2+2*len(messages)), of: make([]*queue, len(messages))}
	for i := range messages {
		m := messages[i]
		m.Complete()
		if err := s.add(ctx, i, &m); err != nil {
			return nil, nil, err
		}
	}
	s.finish()
	reserved := false
	if request != "" && e.cluster {
		if reserved, err = e.reserve(ctx, request, head); err != nil {
			return nil, nil, err
		}
		s.names = append(s.names, e.keys.answer(s.queues[0].name, request))
	} else if request != "" {
		s.names = append(s.names, request)
	}
	script := &sendScript
	if len(s.unique) > 0 {
		if err := posthaste.CheckUniqueKeys(messages, s.unique); err != nil {
			return nil, nil, err
		}
		script = &sendUniqueScript
	}
	reply, err := script.run(ctx, e.client, s.names, s.args)
	if reserved && (err != nil && (answered(err) || neverSent(err)) || err == nil && gone(reply)) {
		_ = e.client.Del(ctx, request).Err() // so that another request can use the key
	}
	if err != nil {
		return nil, nil, err
	}
	return s.answer(reply)
}

// sendCall collects the keys and arguments of one call of send.lua.
type sendCall struct {
	engine *Engine
	head   sendHead
	queues []*queue
	places map[string]int // index of each queue by name, from 1
	of     []*queue       // the queue of each message
	names  []string       // of keys
	once   []string       // keys of dedupe keys and unique keys, which follow the others
	unique []string       // of each message, its queue and unique key
	args   arguments
	// For each queue; head needs them only if a queue looks at keys, has a MaxAge, has further
	// subscriptions, or had other options before.
	kinds, ended                 []int
	ages                         []int64
	versions, letters, revisions []string
	looks, aged, shared, revised bool
}

// add adds a message.
func (s *sendCall) add(ctx context.Context, i int, m *posthaste.Message) error {
	if err := m.Check(); err != nil {
		return err
	}
	q, err := s.engine.registry.queue(ctx, m.Queue)
	if err != nil {
		return err
	}
	if s.head.of != "" && s.head.of != q.of() {
		return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: fmt.Sprintf("queue %q was dropped", q.name)}
	}
	if s.places[q.name] == 0 {
		s.addQueue(q)
	}
	s.of[i] = q
	c, err := contentOf(m, q)
	if err != nil {
		return err
	}
	options, err := s.options(m, q, &c)
	if err != nil {
		return err
	}
	s.args = append(s.args, arg{is: options}, arg{is: c.encode()})
	return nil
}

func (s *sendCall) addQueue(q *queue) {
	s.queues = append(s.queues, q)
	s.places[q.name] = len(s.queues)
	s.names = append(s.names, q.keys...)
	for _, sub := range q.subs {
		s.names = append(s.names, sub.keys...)
	}
	s.shared, s.versions, s.letters = s.shared || q.version != "", append(s.versions, q.version), append(s.letters, q.letters())
	s.ended = append(s.ended, min(len(q.first), 1))
	s.head.Numbers = append(s.head.Numbers, q.numberArg)
	s.looks, s.kinds = s.looks || q.looks > 0, append(s.kinds, q.looks)
	s.revised, s.revisions = s.revised || q.options.Revision > 0, append(s.revisions, q.revision())
	s.aged, s.ages = s.aged || q.options.MaxAge > 0, append(s.ages, q.options.MaxAge.Microseconds())
}

// options returns the packed options of a message, or "" if it has none.
func (s *sendCall) options(m *posthaste.Message, q *queue, c *content) (string, error) {
	o := sendOptions{Silent: m.NoWake, Words: words(m), Excluded: q.excluded(m)}
	if q.looks > 0 {
		if err := checkKeyed(m, q); err != nil {
			return "", err
		}
		o.Key = m.Key
	}
	if at := s.places[q.name]; at > 1 {
		o.Queue = at
	}
	if m.Delay > 0 {
		o.Delay = new(max(1, m.Delay.Microseconds()))
	} else if !m.SendAt.IsZero() {
		o.Time = new(max(0, micros(m.SendAt)))
	}
	if m.DedupeKey != "" {
		s.once = append(s.once, s.engine.keys.once(q.name, q.number, m.DedupeKey))
		o.Once, o.Window = len(s.once), max(1, cmp.Or(m.DedupeWindow, 24*time.Hour).Milliseconds())
	}
	s.addUnique(m, q, c, &o)
	if o.Silent || o.Unique != nil || o.Words != nil || o.Queue != 0 || o.Delay != nil || o.Time != nil || o.Once != 0 || o.Key != "" || o.Excluded != "" {
		return packed(o), nil
	}
	return "", nil
}

// finish completes the head and the keys after the last message.
func (s *sendCall) finish() {
	if s.looks {
		s.head.Looks = s.kinds
	}
	if s.aged {
		s.head.Aged = s.ages
	}
	if s.revised {
		s.head.Revisions = s.revisions
	}
	if s.shared {
		s.head.Versions, s.head.Letters, s.head.Ended = s.versions, s.letters, s.ended
	}
	s.args[0], s.args[1] = arg{"count", len(s.queues)}, arg{"head", packed(s.head)}
	s.names = append(s.names, s.once...)
	if s.head.Schedule != "" {
		s.names = append(s.names, s.engine.keys.ticked(s.queues[0].name))
	}
}

// answer reads the reply of send.lua.
func (s *sendCall) answer(reply any) (sent []posthaste.Sent, missing *queue, err error) {
	switch reply {
	case "reused":
		return nil, nil, keyReused()
	case "ticked":
		return nil, nil, errTicked
	case "alive":
		return nil, nil, errAlive
	}
	if err := s.cannotReplace(reply); err != nil {
		return nil, nil, err
	}
	all, err := list("send", reply, 1)
	if err != nil {
		return nil, nil, err
	}
	if len(all) == 2 && all[0] == "again" {
		*s.head.replayed = true
		if all, err = list("send", all[1], 1); err != nil {
			return nil, nil, err
		}
	}
	if len(all) == 3 && all[0] == "copied" {
		s.head.copies.before = str(all[2])
		all = []any{"=" + str(all[1])}
	}
	if gone(reply) {
		if n, ok := all[1].(int64); ok && int(n) <= len(s.queues) {
			return nil, s.queues[n-1], nil
		}
	}
	if len(all) != len(s.of) {
		return nil, nil, unexpected("send", reply)
	}
	sent = make([]posthaste.Sent, len(all))
	for i := range all {
		place, duplicate := strings.CutPrefix(str(all[i]), "=")
		place, replaced := strings.CutPrefix(place, "~")
		place, state, _ := strings.Cut(place, ":")
		n, err := id(place, s.of[i].number)
		if err != nil {
			return nil, nil, err
		}
		sent[i] = posthaste.Sent{ID: posthaste.MessageID(n), Duplicate: duplicate, Replaced: replaced, State: posthaste.State(state)}
	}
	return sent, nil, nil
}

// checkKeyed rejects options that a queue that looks at keys does not support.
func checkKeyed(m *posthaste.Message, q *queue) error {
	ordered := q.options.Ordered
	switch {
	case ordered && m.Key == "":
		return posthaste.Invalidf("key", "an ordered queue needs a key in each message, which determines its order")
	case ordered && m.Unique != nil && m.Unique.Exists == posthaste.ReplaceExisting:
		return posthaste.Invalidf("unique", "a message of an ordered queue cannot replace another, because it would change the order of its key")
	case ordered && m.Delay > 0:
		return posthaste.Invalidf("delay", "a message of an ordered queue cannot be delayed: all later ones of its key would wait for it")
	case ordered && !m.SendAt.IsZero():
		return posthaste.Invalidf("send_at", "a message of an ordered queue cannot be scheduled: all later ones of its key would wait for it")
	case m.Priority != 0:
		return posthaste.Invalidf("priority", "queues that are ordered or fair, or have limits for each key, have no priorities")
	}
	return nil
}

// contentOf checks a message against the limits of its queue and returns its content.
func contentOf(m *posthaste.Message, q *queue) (c content, err error) {
	if err := m.CheckFor(&q.options.QueueOptions); err != nil {
		return c, err
	}
	if len(m.Terms) > 1000 {
		return c, posthaste.Invalidf("terms", "there are over 1,000 terms")
	}
	body, contentType, err := jsoncheck.Body(m, q.options.MaxPayload)
	if err != nil {
		return c, err
	}
	return content{priority: m.Priority, key: m.Key, kind: m.Kind, reference: m.Reference, contentType: contentType,
		headers: m.Headers, terms: m.Terms, attempts: attemptOptionsOf(m), payload: body}, nil
}

// errAlive means that a message was replayed, discarded or erased before its edited copy was sent.
var errAlive error = &posthaste.Error{Code: posthaste.CodeConflict, Field: "message_id", Message: "the message is not a dead letter any more, or its content was erased", Hint: "read it again"}

// errTicked means that another process sent a tick of the schedule first.
var errTicked error = &posthaste.Error{Code: posthaste.CodeConflict, Message: "another process sent this tick"}

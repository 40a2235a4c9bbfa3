package nats

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
)

// tapKey names a consumer: of a subscription and a lane of a queue.
type tapKey struct {
	queue, subscription string
	lane                int
}

// tap has the messages that came from one consumer and were not handed out yet: its hand. taps.mu
// guards it.
type tap struct {
	tapKey
	stream, consumer string
	ackWait          time.Duration
	since            time.Time // when the subscription was made
	hand             []*arrival
	waiting          *pull // the open pull that rings the doorbell, or nil
	noLeader         bool  // such a pull found no leader: sweep opens it again
	usedAt           time.Duration
}

// arrival is a message that came.
type arrival struct {
	*natsgo.Msg
	lease     time.Duration
	meta      *meta
	body      []byte
	seq       uint64 // its entry in the stream
	delivered int    // how often the server has handed out the entry
}

// pull is a request for messages that was sent to a consumer.
type pull struct {
	tap      *tap
	inbox    *natsgo.Subscription
	lease    time.Duration // by uptime: the end of the lease of the messages that it brings
	ends     time.Duration // by uptime: when the server has forgotten it
	want     int
	arriving int // messages that came and are not in the hand yet
	ended    bool
	fault    string        // the status that ended it, if it is unusual
	done     chan struct{} // closed when it has ended and all its messages are in the hand
}

// taps pulls messages from consumers.
type taps struct {
	conn *natsgo.Conn
	// arrived is called for each message and must not block. It calls finished once it has put the
	// message into the hand, or decided not to.
	arrived func(t *tap, a *arrival, finished func())
	ring    func(queue string)
	asleep  func(queue string) bool

	mu     sync.Mutex
	closed bool // shut was called
	pulls  map[*pull]bool
	byKey  map[tapKey]*tap
	// listeners are claims that wait for the first message of a queue.
	listeners map[chan bool]string
}

func (s *taps) start(conn *natsgo.Conn) {
	s.conn, s.pulls, s.byKey, s.listeners = conn, map[*pull]bool{}, map[tapKey]*tap{}, map[chan bool]string{}
}

// of returns the tap of a consumer.
func (s *taps) of(q *queue, sub *subscription, lane int) *tap {
	key := tapKey{q.Name, sub.Name, lane}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.byKey[key]
	if t == nil || t.stream != q.stream || !t.since.Equal(sub.CreatedAt) {
		t = &tap{tapKey: key, stream: q.stream, consumer: q.consumer(sub.Name, lane), ackWait: sub.AckWait, since: sub.CreatedAt}
		s.byKey[key] = t
	}
	t.usedAt = uptime()
	return t
}

// pullRequest is the body of a pull.
type pullRequest struct {
	Batch   int           `json:"batch"`
	NoWait  bool          `json:"no_wait,omitempty"`
	Expires time.Duration `json:"expires,omitempty"`
}

// emptyWait is how long a pull that does not wait for messages stays open while no message waits: a
// consumer learns of a message some time after its sender was told that it is stored.
const emptyWait = 25 * time.Millisecond

// open sends a pull. With wait it stays open until a message comes or a third of AckWait has
// passed, otherwise it brings the messages that wait.
func (s *taps) open(t *tap, n int, wait bool) (*pull, error) {
	r := pullRequest{Batch: n, NoWait: !wait, Expires: emptyWait}
	now := uptime()
	p := &pull{tap: t, want: n, lease: now + t.ackWait - margin, ends: now + callTimeout, done: make(chan struct{})}
	if wait {
		r.Expires = t.ackWait / 3
		p.ends = now + r.Expires + time.Second
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	inbox := s.conn.NewInbox()
	// A message comes with the subject that it was sent to, not with that of the inbox, so that each pull
	// needs a subscription of its own.
	p.inbox, err = s.conn.Subscribe(inbox, func(m *natsgo.Msg) { s.take(p, m) })
	if err != nil {
		return nil, err
	}
	_ = p.inbox.SetPendingLimits(-1, -1) // it fails for closed subscriptions only
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		_ = p.inbox.Unsubscribe()
		return nil, natsgo.ErrConnectionClosed
	}
	s.pulls[p] = true
	if wait {
		t.waiting = p
	}
	s.mu.Unlock()
	if err = s.conn.PublishMsg(&natsgo.Msg{Subject: "$JS.API.CONSUMER.MSG.NEXT." + t.stream + "." + t.consumer, Reply: inbox, Data: body}); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.close(p)
	}
	return p, err
}

// close ends a pull and closes its inbox. s.mu is held.
func (s *taps) close(p *pull) {
	delete(s.pulls, p)
	s.end(p)
	_ = p.inbox.Unsubscribe() // the connection may be closed
}

// end ends a pull. Its inbox stays open, because messages may be under way. s.mu is held.
func (s *taps) end(p *pull) {
	if !p.ended {
		p.ended = true
		if p.arriving == 0 {
			closeOnce(p.done)
		}
	}
	if p.tap.waiting == p {
		p.tap.waiting = nil
	}
}

// take handles a message or a status that a pull got.
func (s *taps) take(p *pull, m *natsgo.Msg) {
	s.mu.Lock()
	if status := m.Header.Get("Status"); status != "" && len(m.Data) == 0 && m.Header.Get(headerMeta) == "" {
		waited := p.tap.waiting == p
		if status != "404" && status != "408" {
			p.fault = status + " " + m.Header.Get("Description")
		}
		s.close(p)
		p.tap.noLeader = waited && status == "503"
		s.mu.Unlock()
		if waited && status != "503" { // without a leader, sweep opens it again
			s.reopen(p.tap)
		}
		return
	}
	p.arriving++
	if p.want--; p.want == 0 {
		s.close(p)
	}
	s.mu.Unlock()
	s.arrived(p.tap, &arrival{Msg: m, lease: p.lease}, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.arriving--; p.ended && p.arriving == 0 {
			closeOnce(p.done)
		}
	})
}

func closeOnce(done chan struct{}) {
	select {
	case <-done:
	default:
		close(done)
	}
}

// put puts a message into the hand, and wakes the claims and sleepers of its queue.
func (s *taps) put(t *tap, a *arrival) {
	s.mu.Lock()
	t.hand = append(t.hand, a)
	for rings, queue := range s.listeners {
		if queue == t.queue {
			select {
			case rings <- true:
			default:
			}
		}
	}
	s.mu.Unlock()
	s.ring(t.queue)
}

// listen rings a channel when a message of a queue comes, until the function returned is called.
func (s *taps) listen(queue string, rings chan bool) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners[rings] = queue
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, rings)
	}
}

// openWaiting opens a pull that waits, unless one is open already or a message is in the hand.
func (s *taps) openWaiting(t *tap) error {
	s.mu.Lock()
	wanted := t.waiting == nil && len(t.hand) == 0
	s.mu.Unlock()
	if !wanted {
		return nil
	}
	_, err := s.open(t, 1, true)
	return err
}

// reopen opens a pull that waits, if a process sleeps and none is open.
func (s *taps) reopen(t *tap) {
	if s.asleep(t.queue) {
		_ = s.openWaiting(t) // sweep tries again
	}
}

// wait opens pulls that wait at the consumers of a queue from which this process has claimed within AckWait.
func (s *taps) wait(queue string) {
	for _, t := range s.recent(queue) {
		s.reopen(t)
	}
}

func (s *taps) recent(queue string) (all []*tap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.byKey {
		if t.queue == queue && uptime()-t.usedAt < t.ackWait {
			all = append(all, t)
		}
	}
	return all
}

// late is how long before the end of its lease a message in the hand is given back.
func (t *tap) late() time.Duration { return t.ackWait / 5 }

// next takes the next message whose lease has not ended from the hand, or returns nil. It drops those
// before it whose lease has ended.
func (s *taps) next(t *tap, now time.Duration) *arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(t.hand) > 0 {
		a := t.hand[0]
		left := a.lease - now
		if left > 0 && left < t.late()/2 { // emptyHands may be giving it back
			return nil
		}
		if t.hand = t.hand[1:]; left > 0 {
			return a
		}
	}
	return nil
}

// putBack puts a message that cannot be handed out now back to the front of the hand.
func (s *taps) putBack(t *tap, a *arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.hand = append([]*arrival{a}, t.hand...)
}

// shut ends all pulls. The servers deliver nothing to an inbox without a subscription.
func (s *taps) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for p := range s.pulls {
		s.close(p)
	}
}

// drain empties all hands: of messages whose lease ends soon, or of everything.
func (s *taps) drain(everything bool) map[*tap][]*arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, now := map[*tap][]*arrival{}, uptime()
	for _, t := range s.byKey {
		t.hand = slices.DeleteFunc(t.hand, func(a *arrival) bool {
			takes := everything || a.lease-now < t.late()
			if takes {
				all[t] = append(all[t], a)
			}
			return takes
		})
	}
	return all
}

// sweep forgets pulls that no server answers any more, and opens those again that wait.
func (s *taps) sweep() {
	now := uptime()
	var again []*tap
	s.mu.Lock()
	for p := range s.pulls {
		if now > p.ends {
			if p.tap.waiting == p {
				again = append(again, p.tap)
			}
			s.end(p)
			if now > p.lease { // until then its messages may still come
				s.close(p)
			}
		}
	}
	for _, t := range s.byKey {
		if t.noLeader {
			t.noLeader = false
			again = append(again, t)
		}
	}
	s.mu.Unlock()
	for _, t := range again {
		s.reopen(t)
	}
}

// reconnected opens the pulls again that wait: the servers may have forgotten them.
func (s *taps) reconnected() {
	var again []*tap
	s.mu.Lock()
	for p := range s.pulls {
		if p.tap.waiting == p {
			s.end(p)
			again = append(again, p.tap)
		}
	}
	s.mu.Unlock()
	for _, t := range again {
		s.reopen(t)
	}
}

// faultOf returns the unusual status that ended a pull, or "".
func (s *taps) faultOf(p *pull) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.fault
}

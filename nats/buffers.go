package nats

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
)

// bufferKey names a consumer: of a subscription and a lane of a queue.
type bufferKey struct {
	queue, subscription string
	lane                int
}

// buffer has the messages that came from one consumer and were not handed out yet. buffers.mu
// guards it.
type buffer struct {
	bufferKey
	stream, consumer string
	ackWait          time.Duration
	since            time.Time // when the subscription was made
	arrivals         []*arrival
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
	buffer   *buffer
	inbox    *natsgo.Subscription
	lease    time.Duration // by uptime: the end of the lease of the messages that it brings
	ends     time.Duration // by uptime: when the server has forgotten it
	want     int
	arriving int // messages that came and are not in the buffer yet
	ended    bool
	fault    string        // the status that ended it, if it is unusual
	done     chan struct{} // closed when it has ended and all its messages are in the buffer
}

// buffers pulls messages from consumers.
type buffers struct {
	conn *natsgo.Conn
	// arrived is called for each message and must not block. It calls finished once it has put the
	// message into the buffer, or decided not to.
	arrived func(b *buffer, a *arrival, finished func())
	ring    func(queue string)
	asleep  func(queue string) bool

	mu     sync.Mutex
	closed bool // shut was called
	pulls  map[*pull]bool
	byKey  map[bufferKey]*buffer
	// listeners are claims that wait for the first message of a queue.
	listeners map[chan bool]string
}

func (s *buffers) start(conn *natsgo.Conn) {
	s.conn, s.pulls, s.byKey, s.listeners = conn, map[*pull]bool{}, map[bufferKey]*buffer{}, map[chan bool]string{}
}

// of returns the buffer of a consumer.
func (s *buffers) of(q *queue, sub *subscription, lane int) *buffer {
	key := bufferKey{q.Name, sub.Name, lane}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.byKey[key]
	if b == nil || b.stream != q.stream || !b.since.Equal(sub.CreatedAt) {
		b = &buffer{bufferKey: key, stream: q.stream, consumer: q.consumer(sub.Name, lane), ackWait: sub.AckWait, since: sub.CreatedAt}
		s.byKey[key] = b
	}
	b.usedAt = uptime()
	return b
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
func (s *buffers) open(b *buffer, n int, wait bool) (*pull, error) {
	r := pullRequest{Batch: n, NoWait: !wait, Expires: emptyWait}
	now := uptime()
	p := &pull{buffer: b, want: n, lease: now + b.ackWait - margin, ends: now + callTimeout, done: make(chan struct{})}
	if wait {
		r.Expires = b.ackWait / 3
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
		b.waiting = p
	}
	s.mu.Unlock()
	if err = s.conn.PublishMsg(&natsgo.Msg{Subject: "$JS.API.CONSUMER.MSG.NEXT." + b.stream + "." + b.consumer, Reply: inbox, Data: body}); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.close(p)
	}
	return p, err
}

// close ends a pull and closes its inbox. s.mu is held.
func (s *buffers) close(p *pull) {
	delete(s.pulls, p)
	s.end(p)
	_ = p.inbox.Unsubscribe() // the connection may be closed
}

// end ends a pull. Its inbox stays open, because messages may be under way. s.mu is held.
func (s *buffers) end(p *pull) {
	if !p.ended {
		p.ended = true
		if p.arriving == 0 {
			closeOnce(p.done)
		}
	}
	if p.buffer.waiting == p {
		p.buffer.waiting = nil
	}
}

// take handles a message or a status that a pull got.
func (s *buffers) take(p *pull, m *natsgo.Msg) {
	s.mu.Lock()
	if status := m.Header.Get("Status"); status != "" && len(m.Data) == 0 && m.Header.Get(headerMeta) == "" {
		waited := p.buffer.waiting == p
		if status != "404" && status != "408" {
			p.fault = status + " " + m.Header.Get("Description")
		}
		s.close(p)
		p.buffer.noLeader = waited && status == "503"
		s.mu.Unlock()
		if waited && status != "503" { // without a leader, sweep opens it again
			s.reopen(p.buffer)
		}
		return
	}
	p.arriving++
	if p.want--; p.want == 0 {
		s.close(p)
	}
	s.mu.Unlock()
	s.arrived(p.buffer, &arrival{Msg: m, lease: p.lease}, func() {
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

// put puts a message into the buffer, and wakes the claims and sleepers of its queue.
func (s *buffers) put(b *buffer, a *arrival) {
	s.mu.Lock()
	b.arrivals = append(b.arrivals, a)
	for rings, queue := range s.listeners {
		if queue == b.queue {
			select {
			case rings <- true:
			default:
			}
		}
	}
	s.mu.Unlock()
	s.ring(b.queue)
}

// listen rings a channel when a message of a queue comes, until the function returned is called.
func (s *buffers) listen(queue string, rings chan bool) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners[rings] = queue
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, rings)
	}
}

// openWaiting opens a pull that waits, unless one is open already or a message is in the buffer.
func (s *buffers) openWaiting(b *buffer) error {
	s.mu.Lock()
	wanted := b.waiting == nil && len(b.arrivals) == 0
	s.mu.Unlock()
	if !wanted {
		return nil
	}
	_, err := s.open(b, 1, true)
	return err
}

// reopen opens a pull that waits, if a process sleeps and none is open.
func (s *buffers) reopen(b *buffer) {
	if s.asleep(b.queue) {
		_ = s.openWaiting(b) // sweep tries again
	}
}

// wait opens pulls that wait at the consumers of a queue from which this process has claimed within AckWait.
func (s *buffers) wait(queue string) {
	for _, b := range s.recent(queue) {
		s.reopen(b)
	}
}

func (s *buffers) recent(queue string) (all []*buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.byKey {
		if b.queue == queue && uptime()-b.usedAt < b.ackWait {
			all = append(all, b)
		}
	}
	return all
}

// late is how long before the end of its lease a message in the buffer is given back.
func (b *buffer) late() time.Duration { return b.ackWait / 5 }

// next takes the next message whose lease has not ended from the buffer, or returns nil. It drops those
// before it whose lease has ended.
func (s *buffers) next(b *buffer, now time.Duration) *arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(b.arrivals) > 0 {
		a := b.arrivals[0]
		left := a.lease - now
		if left > 0 && left < b.late()/2 { // emptyBuffers may be giving it back
			return nil
		}
		if b.arrivals = b.arrivals[1:]; left > 0 {
			return a
		}
	}
	return nil
}

// putBack puts a message that cannot be handed out now back to the front of the buffer.
func (s *buffers) putBack(b *buffer, a *arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.arrivals = append([]*arrival{a}, b.arrivals...)
}

// shut ends all pulls. The servers deliver nothing to an inbox without a subscription.
func (s *buffers) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for p := range s.pulls {
		s.close(p)
	}
}

// drain empties all buffers: of messages whose lease ends soon, or of everything.
func (s *buffers) drain(everything bool) map[*buffer][]*arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, now := map[*buffer][]*arrival{}, uptime()
	for _, b := range s.byKey {
		b.arrivals = slices.DeleteFunc(b.arrivals, func(a *arrival) bool {
			takes := everything || a.lease-now < b.late()
			if takes {
				all[b] = append(all[b], a)
			}
			return takes
		})
	}
	return all
}

// sweep forgets pulls that no server answers any more, and opens those again that wait.
func (s *buffers) sweep() {
	now := uptime()
	var again []*buffer
	s.mu.Lock()
	for p := range s.pulls {
		if now > p.ends {
			if p.buffer.waiting == p {
				again = append(again, p.buffer)
			}
			s.end(p)
			if now > p.lease { // until then its messages may still come
				s.close(p)
			}
		}
	}
	for _, b := range s.byKey {
		if b.noLeader {
			b.noLeader = false
			again = append(again, b)
		}
	}
	s.mu.Unlock()
	for _, b := range again {
		s.reopen(b)
	}
}

// reconnected opens the pulls again that wait: the servers may have forgotten them.
func (s *buffers) reconnected() {
	var again []*buffer
	s.mu.Lock()
	for p := range s.pulls {
		if p.buffer.waiting == p {
			s.end(p)
			again = append(again, p.buffer)
		}
	}
	s.mu.Unlock()
	for _, b := range again {
		s.reopen(b)
	}
}

// faultOf returns the unusual status that ended a pull, or "".
func (s *buffers) faultOf(p *pull) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.fault
}

package nats

import (
	"strconv"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
)

// The signs by which a holder tells the server what to do with a delivery.
const (
	signAck      = "+ACK"
	signProgress = "+WPI"
	signNak      = "-NAK"
)

// repeatAfter is when an unconfirmed sign is sent again.
const repeatAfter = time.Second

// ack is a sign whose confirmation is awaited.
type ack struct {
	reply, sign string
	until       time.Duration // by uptime; it is not sent after that
	sent        time.Duration
	done        func(confirmed bool) // called once, must not block
}

// acks sends signs pipelined, with one inbox for their confirmations, and repeats unconfirmed ones as long
// as they may be sent.
type acks struct {
	conn    *natsgo.Conn
	inbox   string // with a dot at its end
	mu      sync.Mutex
	last    uint64
	pending map[string]*ack
}

// start begins to listen for confirmations. The engine calls repeat.
func (a *acks) start(conn *natsgo.Conn, subscribe func(string, natsgo.MsgHandler) error) error {
	a.conn, a.inbox, a.pending = conn, conn.NewInbox()+".", map[string]*ack{}
	return subscribe(a.inbox+"*", a.confirmed)
}

// send sends a sign until it is confirmed or its time has passed, and then calls done.
func (a *acks) send(s *ack) {
	s.sent = uptime()
	if s.sent > s.until {
		s.done(false)
		return
	}
	a.mu.Lock()
	a.last++
	token := strconv.FormatUint(a.last, 36)
	a.pending[token] = s
	a.mu.Unlock()
	a.publish(token, s)
}

// publish ignores errors: the sign is repeated.
func (a *acks) publish(token string, s *ack) {
	_ = a.conn.PublishMsg(&natsgo.Msg{Subject: s.reply, Reply: a.inbox + token, Data: []byte(s.sign)})
}

// confirmed takes an answer. One with a status is no confirmation: 503 says that no server
// received the sign.
func (a *acks) confirmed(m *natsgo.Msg) {
	if len(m.Header) > 0 || len(m.Data) > 0 {
		return
	}
	token := m.Subject[len(a.inbox):]
	a.mu.Lock()
	s := a.pending[token]
	delete(a.pending, token)
	a.mu.Unlock()
	if s != nil {
		s.done(true)
	}
}

// repeat sends unconfirmed signs again, and gives up those that must not be sent any more.
func (a *acks) repeat() {
	at := uptime()
	var ended []*ack
	again := map[string]*ack{}
	a.mu.Lock()
	for token, s := range a.pending {
		switch {
		case at > s.until:
			ended = append(ended, s)
			delete(a.pending, token)
		case at-s.sent > repeatAfter:
			s.sent = at
			again[token] = s
		}
	}
	a.mu.Unlock()
	for _, s := range ended {
		s.done(false)
	}
	for token, s := range again {
		a.publish(token, s)
	}
}

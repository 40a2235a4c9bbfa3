package nats

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"
)

// puller requests messages from a consumer, with one subscription for all answers of a
// session. The library has one for each request and drops it a second after the last
// message. Messages that arrive later, such as from a busy server, would then be missing
// until the consumer's AckWait ends. A puller is not safe for concurrent use.
type puller struct {
	conn     *natsgo.Conn
	received chan *natsgo.Msg // answers, also after the connection is lost
	gone     <-chan struct{}  // closed with the connection
	inbox    string           // the subject of answers, before the number of the request
	request  string           // the subject that requests go to
	number   int
}

// mostUnread exceeds the number of answers that can be waiting: those of one request and
// the late ones of the request before.
const mostUnread = 2*10_000 + 100

// newPuller subscribes to the answers. gone is closed with the connection.
func newPuller(conn *natsgo.Conn, gone <-chan struct{}, stream, consumer string) (*puller, error) {
	p := &puller{conn: conn, received: make(chan *natsgo.Msg, mostUnread), gone: gone, inbox: conn.NewInbox() + ".", request: "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer}
	_, err := conn.ChanSubscribe(p.inbox+"*", p.received)
	return p, err
}

// Status codes of answers that are not messages. All but the first end the request.
const (
	statusAlive   = "100"
	statusNone    = "404" // no more messages
	statusTimeout = "408" // no message in time
	statusNobody  = "503" // no consumer
)

// patience is how long after its timeout a request may stay unanswered.
const patience = 10 * time.Second

// next requests up to most messages and waits for the first one (0: not at all). With an
// error it returns the messages received before. The result includes late messages of
// earlier requests; late messages of this one are in the next result.
func (p *puller) next(most int, wait time.Duration) (all []*natsgo.Msg, err error) {
	p.number++
	inbox := p.inbox + strconv.Itoa(p.number)
	body, err := json.Marshal(struct {
		Batch   int           `json:"batch"`
		Expires time.Duration `json:"expires,omitempty"`
		NoWait  bool          `json:"no_wait,omitempty"`
	}{most, wait, wait == 0})
	if err == nil {
		err = p.conn.PublishRequest(p.request, inbox, body)
	}
	if err != nil {
		return nil, err
	}
	silence := wait + patience
	for len(all) < most {
		m, err := p.take(silence)
		if err != nil {
			return all, err
		}
		status := m.Header.Get("Status")
		switch {
		case m.Reply != "": // messages have a subject for their acknowledgment
			all = append(all, m)
		case m.Subject != inbox || status == statusAlive:
		case status == statusNone || status == statusTimeout:
			return all, nil
		case status == statusNobody:
			return all, errors.New("the consumer is gone")
		default:
			return all, fmt.Errorf("the server ended a request for messages: %s %s", status, m.Header.Get("Description"))
		}
	}
	return all, nil
}

// take returns the next answer. It fails if none arrives in time, or if the connection is
// lost and all its answers were taken.
func (p *puller) take(silence time.Duration) (*natsgo.Msg, error) {
	select {
	case m := <-p.received:
		return m, nil
	default:
	}
	timer := time.NewTimer(silence)
	defer timer.Stop()
	select {
	case m := <-p.received:
		return m, nil
	case <-timer.C:
		return nil, errors.New("the server does not answer a request for messages")
	case <-p.gone:
	}
	select {
	case m := <-p.received:
		return m, nil
	default:
		return nil, errors.New("the connection was lost")
	}
}

// late returns the messages that have arrived and were not taken.
func (p *puller) late() (all []*natsgo.Msg) {
	for {
		select {
		case m := <-p.received:
			if m.Reply != "" {
				all = append(all, m)
			}
		default:
			return all
		}
	}
}

package nats

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"
)

// puller asks a consumer for messages. All answers of a session come to one
// subscription: the library has one for each request, and gives that up a second after
// the last message, so that what a busy server or a slow line brings later is lost to
// it until the consumer's AckWait is over. Not for concurrent use.
type puller struct {
	conn    *natsgo.Conn
	came    chan *natsgo.Msg // what came, also after the connection was lost
	gone    <-chan struct{}  // closed with the connection
	inbox   string           // where answers come to, before the number of the request
	request string           // the subject that requests go to
	number  int
}

// mostUnread is more than can have come and not been taken: what one request brings,
// and what one before it brought late.
const mostUnread = 2*10_000 + 100

// newPuller subscribes to what will be asked for. gone is closed with the connection.
func newPuller(conn *natsgo.Conn, gone <-chan struct{}, stream, consumer string) (*puller, error) {
	p := &puller{conn: conn, came: make(chan *natsgo.Msg, mostUnread), gone: gone, inbox: conn.NewInbox() + ".", request: "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer}
	_, err := conn.ChanSubscribe(p.inbox+"*", p.came)
	return p, err
}

// What the server says in answers that are no messages. All but the first end the
// request.
const (
	statusAlive   = "100"
	statusNone    = "404" // there are no more messages
	statusTimeout = "408" // none came in time
	statusNobody  = "503"
)

// patience is how long the server may keep silent about a request beyond its time.
const patience = 10 * time.Second

// next asks for at most most messages, of which it waits for the first as long as told
// (0: not at all). With an error it returns what has come before. What comes late of
// earlier requests is among it, and what is left of this one among the next.
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
		case m.Reply != "": // where it is acknowledged
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

// take takes one answer; it fails if none comes for so long, or the connection is lost
// and nothing is left of it.
func (p *puller) take(silence time.Duration) (*natsgo.Msg, error) {
	select {
	case m := <-p.came:
		return m, nil
	default:
	}
	timer := time.NewTimer(silence)
	defer timer.Stop()
	select {
	case m := <-p.came:
		return m, nil
	case <-timer.C:
		return nil, errors.New("the server does not answer a request for messages")
	case <-p.gone:
	}
	select {
	case m := <-p.came:
		return m, nil
	default:
		return nil, errors.New("the connection was lost")
	}
}

// late is what has come and was not taken.
func (p *puller) late() (all []*natsgo.Msg) {
	for {
		select {
		case m := <-p.came:
			if m.Reply != "" {
				all = append(all, m)
			}
		default:
			return all
		}
	}
}

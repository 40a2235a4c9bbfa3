package rabbitmq

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

// arrivals returns how often each message has arrived, by message id.
func (o *sinkQueue) arrivals() map[string]int {
	o.t.Helper()
	times := map[string]int{}
	for _, d := range o.all() {
		times[d.MessageId]++
	}
	return times
}

// A header over which RabbitMQ would close the channel is rejected before anything is
// published. Its neighbors arrive once, at their first attempt.
func TestHeadersThatCloseTheChannel(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, nil)
	s := o.sink(nil)
	var batch []posthaste.RawDelivery
	for n := 1; n <= 30; n++ {
		d := sinktest.Delivery(n)
		switch n {
		case 10:
			d.Headers = map[string]string{"CC": "someone@example.com"}
		case 20:
			d.Headers = map[string]string{"BCC": "x"}
		case 21:
			d.Headers = map[string]string{"cc": "an ordinary header"}
		}
		batch = append(batch, d)
	}
	for i, r := range sinktest.Deliver(t, s, batch...) {
		if bad := i == 9 || i == 19; bad != posthaste.IsPermanent(r.Err) || !bad && r.Err != nil {
			t.Errorf("message %d: %v", i+1, r.Err)
		}
	}
	arrivals := o.arrivals()
	if len(arrivals) != 28 {
		t.Errorf("%d arrived", len(arrivals))
	}
	for id, times := range arrivals {
		if times != 1 {
			t.Errorf("message %s arrived %d times", id, times)
		}
	}
}

// deniedExchange creates a user, and an exchange to which the user may not publish.
func (o *sinkQueue) deniedExchange() (user, exchange string) {
	o.t.Helper()
	user, exchange = "user-"+o.name, "denied-"+o.name
	if err := o.ch.ExchangeDeclare(exchange, "fanout", false, true, false, false, nil); err != nil {
		o.t.Fatal(err)
	}
	for _, args := range [][]string{{"add_user", user, "secret"}, {"set_permissions", "-p", "/", user, "", `^amq\.default$`, ".*"}} {
		if out, err := broker.Control(o.t.Context(), args...); err != nil {
			o.t.Fatal(err, out)
		}
	}
	return user, exchange
}

// A message over which the broker closes the channel is found at its second attempt, and
// fails alone from then on. It repeats once the messages that were in flight with it and no
// others, even if another relay has the later attempts.
func TestClosedChannelRepeatsNeighboursOnce(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, nil)
	user, denied := o.deniedExchange()
	one := func() *Sink {
		return o.sink(func(c *SinkConfig) {
			c.URL, c.Exchange, c.Connections = URL("amqp://"+user+":secret@"+o.proxy.Address()+"/"), "{{.Reference}}", 1
		})
	}
	const each, guilty = 200, 1_000_000
	s, refusals := one(), 0
	var open []posthaste.RawDelivery
	for round := range 5 {
		if round == 2 {
			s = one()
		}
		// The failed messages, with new ones around them.
		var batch []posthaste.RawDelivery
		for n := range each {
			batch = append(batch, sinktest.Delivery(1+round*each+n))
			if n == each/2 {
				if round == 0 {
					d := sinktest.Delivery(guilty)
					d.Reference = denied
					open = append(open, d)
				}
				batch = append(batch, open...)
			}
		}
		open = nil
		for i, r := range sinktest.Deliver(t, s, batch...) {
			d := batch[i]
			if r.Err == nil {
				continue
			}
			if posthaste.IsPermanent(r.Err) || !strings.Contains(r.Err.Error(), "403 ACCESS_REFUSED") {
				t.Errorf("round %d, message %d: %v", round, d.MessageID, r.Err)
			}
			if d.MessageID == guilty {
				refusals++
			} else if round > 0 {
				t.Errorf("round %d, message %d, attempt %d: %v", round, d.MessageID, d.Attempt, r.Err)
			}
			open = append(open, sinktest.Next(d, r))
		}
		if round == 0 && len(open) < each/2-1 {
			t.Fatalf("only %d messages failed: the test is ineffective", len(open))
		}
	}
	if len(open) != 1 || open[0].MessageID != guilty || refusals != 5 {
		t.Errorf("%d are left, %d refusals", len(open), refusals)
	}
	arrivals := o.arrivals()
	for n := 1; n <= 5*each; n++ {
		times := arrivals[posthaste.MessageID(n).String()]
		if times < 1 || times > 2 || n > each && times != 1 {
			t.Errorf("message %d arrived %d times", n, times)
		}
	}
}

// If a batch times out while it waits for confirms, other batches in flight on the connection
// get theirs, later batches use another connection, and this one is closed.
func TestTimeIsUpForOneBatch(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, nil)
	s := o.sink(func(c *SinkConfig) { c.Connections = 1 })
	if r := sinktest.Deliver(t, s, sinktest.Delivery(1)); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	l := s.links.Current()[0]
	flying := func(n int) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.flying) == n
	}
	reached, release := o.proxy.Hang()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	short, long := make(chan error, 1), make(chan error, 1)
	go func() { short <- s.Deliver(ctx, []posthaste.RawDelivery{sinktest.Delivery(2)})[0].Err }()
	<-reached
	go func() { long <- sinktest.Deliver(t, s, sinktest.Delivery(3))[0].Err }()
	testrun.Until(t, time.Minute, "both batches are in flight", func() bool { return flying(2) })
	cancel()
	if err := <-short; !errors.Is(err, context.Canceled) || posthaste.IsPermanent(err) {
		t.Errorf("the batch that timed out: %v", err)
	}
	release()
	if err := <-long; err != nil {
		t.Errorf("the batch beside it: %v", err)
	}
	if n := o.count(3); n != 1 {
		t.Errorf("the batch beside it arrived %d times", n)
	}
	if !l.ch.IsClosed() {
		select {
		case <-l.gone:
		case <-time.After(time.Minute):
			t.Error("the connection is left open")
		}
	}
	if r := sinktest.Deliver(t, s, sinktest.Delivery(4)); r[0].Err != nil || s.links.Current()[0] == l {
		t.Errorf("the batch after it: %v", r[0].Err)
	}
}

// A batch that waits for room on a connection that is retired uses another one.
func TestRoomOnRetiredLink(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, nil)
	s := o.sink(func(c *SinkConfig) { c.Connections, c.Outstanding = 1, 1 })
	if r := sinktest.Deliver(t, s, sinktest.Delivery(1)); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	l := s.links.Current()[0]
	reached, release := o.proxy.Hang()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := make(chan error, 1)
	go func() { first <- s.Deliver(ctx, []posthaste.RawDelivery{sinktest.Delivery(2)})[0].Err }()
	<-reached
	d := sinktest.Delivery(3)
	j, err := s.target.prepare(&d)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	l.Use()
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		results := make([]posthaste.SinkResult, 1)
		left := s.publishOn(ctx, l, []job{j}, results)
		if len(left) != 1 {
			err = results[0].Err
		}
		waited <- err
	}()
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	if err := <-waited; err != nil {
		t.Errorf("the batch that waited: %v", err)
	}
	release()
	if r := sinktest.Deliver(t, s, sinktest.Delivery(3)); r[0].Err != nil || o.count(3) != 1 {
		t.Errorf("on another connection: %v, arrived %d times", r[0].Err, o.count(3))
	}
}

package rabbitmq

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	posthaste "github.com/posthaste-mq/posthaste"
)

// again is the attempt after one that failed with r.
func again(d posthaste.RawDelivery, r posthaste.SinkResult) posthaste.RawDelivery {
	d.Story = append(d.Story[:len(d.Story):len(d.Story)], posthaste.Attempt{Attempt: d.Attempt, Outcome: posthaste.OutcomeRetried, Error: r.Err.Error(), Receipt: r.Receipt})
	d.Attempt++
	return d
}

// A header that RabbitMQ would close the channel over is refused before anything is
// published: its neighbours come once, at their first attempt.
func TestHeadersThatCloseTheChannel(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	s := o.sink(nil)
	var batch []posthaste.RawDelivery
	for n := 1; n <= 30; n++ {
		d := delivery(n)
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
	for i, r := range deliver(t, s, batch...) {
		if bad := i == 9 || i == 19; bad != posthaste.IsPermanent(r.Err) || !bad && r.Err != nil {
			t.Errorf("message %d: %v", i+1, r.Err)
		}
	}
	came := map[string]int{}
	for _, d := range o.all() {
		came[d.MessageId]++
	}
	if len(came) != 28 {
		t.Errorf("%d came", len(came))
	}
	for id, times := range came {
		if times != 1 {
			t.Errorf("message %s came %d times", id, times)
		}
	}
}

// A message over which the broker closes the channel is found at its second attempt,
// and goes on to fail by itself: it repeats once what was in flight beside it, and
// nobody else, also when another relay has the later attempts.
func TestClosedChannelRepeatsNeighboursOnce(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	denied := "denied-" + o.name
	if err := o.ch.ExchangeDeclare(denied, "fanout", false, true, false, false, nil); err != nil {
		t.Fatal(err)
	}
	user := "user-" + o.name
	for _, args := range [][]string{{"add_user", user, "secret"}, {"set_permissions", "-p", "/", user, "", `^amq\.default$`, ".*"}} {
		if out, err := broker.Control(t.Context(), args...); err != nil {
			t.Fatal(err, out)
		}
	}
	one := func() *Sink {
		return o.sink(func(c *SinkConfig) {
			c.URL, c.Exchange, c.Connections = URL("amqp://"+user+":secret@"+o.proxy.Address()+"/"), "{{.Reference}}", 1
		})
	}
	const each, guilty = 200, 1_000_000
	s := one()
	var open []posthaste.RawDelivery
	refusals := 0
	for round := range 5 {
		if round == 2 {
			s = one()
		}
		// Of the waiting ones, and with new ones around them.
		var batch []posthaste.RawDelivery
		for n := range each {
			batch = append(batch, delivery(1+round*each+n))
			if n == each/2 {
				if round == 0 {
					d := delivery(guilty)
					d.Reference = denied
					open = append(open, d)
				}
				batch = append(batch, open...)
			}
		}
		open = nil
		for i, r := range deliver(t, s, batch...) {
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
			open = append(open, again(d, r))
		}
		if round == 0 && len(open) < each/2-1 {
			t.Fatalf("%d are in question, which tests nothing", len(open))
		}
	}
	if len(open) != 1 || open[0].MessageID != guilty || refusals != 5 {
		t.Errorf("%d are open, %d refusals", len(open), refusals)
	}
	came := map[string]int{}
	for _, d := range o.all() {
		came[d.MessageId]++
	}
	for n := 1; n <= 5*each; n++ {
		times := came[posthaste.MessageID(n).String()]
		if times < 1 || times > 2 || n > each && times != 1 {
			t.Errorf("message %d came %d times", n, times)
		}
	}
}

// The time of one batch is up while it waits for confirms: others that are in flight
// on the connection get theirs, what comes after takes another, and that one is ended.
func TestTimeIsUpForOneBatch(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	s := o.sink(func(c *SinkConfig) { c.Connections = 1 })
	if r := deliver(t, s, delivery(1)); r[0].Err != nil {
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
	go func() { short <- s.Deliver(ctx, []posthaste.RawDelivery{delivery(2)})[0].Err }()
	<-reached
	go func() { long <- deliver(t, s, delivery(3))[0].Err }()
	for !flying(2) {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-short; !errors.Is(err, context.Canceled) || posthaste.IsPermanent(err) {
		t.Errorf("the one whose time is up: %v", err)
	}
	release()
	if err := <-long; err != nil {
		t.Errorf("the one beside it: %v", err)
	}
	if n := o.count(3); n != 1 {
		t.Errorf("the one beside it came %d times", n)
	}
	if !l.ch.IsClosed() {
		select {
		case <-l.gone:
		case <-time.After(time.Minute):
			t.Error("the connection is left open")
		}
	}
	if r := deliver(t, s, delivery(4)); r[0].Err != nil || s.links.Current()[0] == l {
		t.Errorf("the one after it: %v", r[0].Err)
	}
}

// Who waits for room on a connection that is given up goes by another.
func TestRoomOnRetiredLink(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	s := o.sink(func(c *SinkConfig) { c.Connections, c.Outstanding = 1, 1 })
	if r := deliver(t, s, delivery(1)); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	l := s.links.Current()[0]
	reached, release := o.proxy.Hang()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := make(chan error, 1)
	go func() { first <- s.Deliver(ctx, []posthaste.RawDelivery{delivery(2)})[0].Err }()
	<-reached
	d := delivery(3)
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
		t.Errorf("the one that waited: %v", err)
	}
	release()
	if r := deliver(t, s, delivery(3)); r[0].Err != nil || o.count(3) != 1 {
		t.Errorf("by another: %v, came %d times", r[0].Err, o.count(3))
	}
}

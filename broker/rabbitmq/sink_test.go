package rabbitmq

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

// broker is shared by tests that use names of their own in it and do not stop it.
var broker *devbroker.RabbitMQ

// certificates are those of the broker where it listens with TLS.
var certificates *devbroker.Certificates

func TestMain(m *testing.M) {
	devbroker.MainTLS(m, &broker, &certificates, func(ctx context.Context, dir string, c *devbroker.Certificates) (*devbroker.RabbitMQ, error) {
		return devbroker.StartRabbitMQ(ctx, dir, append(c.RabbitMQ(), "max_message_size = 300000")...)
	})
}

// outside is a queue of the test's own and the messages in it.
type outside struct {
	t     *testing.T
	name  string
	ch    *amqp.Channel
	mu    sync.Mutex
	came  []amqp.Delivery
	proxy *faultproxy.Proxy
}

// isPublish says whether a piece of an AMQP connection holds basic.publish.
func isPublish(piece []byte) bool { return bytes.Contains(piece, []byte{0, 60, 0, 40}) }

// newOutside makes a queue of the test's own.
func newOutside(t *testing.T, args amqp.Table) *outside {
	t.Helper()
	conn, err := amqp.Dial(broker.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	name, lasts := "", args["x-queue-type"] == "quorum" // such queues have a name and last
	if lasts {
		name = strings.ReplaceAll(t.Name(), "/", "-")
	}
	q, err := ch.QueueDeclare(name, lasts, !lasts, !lasts, false, args)
	if err != nil {
		t.Fatal(err)
	}
	o := &outside{t: t, name: q.Name, ch: ch}
	if o.proxy, err = faultproxy.New(broker.Address(), isPublish); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.proxy.Close)
	return o
}

func (o *outside) sink(change func(*SinkConfig)) *Sink {
	o.t.Helper()
	c := SinkConfig{URL: URL("amqp://guest:guest@" + o.proxy.Address() + "/"), RoutingKey: o.name, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&c)
	}
	s, err := NewSink(c)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { s.Close() })
	return s
}

// all returns the messages that have arrived so far.
func (o *outside) all() []amqp.Delivery {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		d, ok, err := o.ch.Get(o.name, true)
		if err != nil {
			o.t.Fatal(err)
		}
		if !ok {
			return o.came
		}
		o.came = append(o.came, d)
	}
}

func (o *outside) count(n int) (count int) {
	for _, d := range o.all() {
		if d.MessageId == fmt.Sprint(n) {
			count++
		}
	}
	return count
}

func delivery(n int) posthaste.RawDelivery {
	return posthaste.RawDelivery{MessageID: posthaste.MessageID(n), Queue: "orders", Attempt: 1, Kind: "order.placed",
		Key: fmt.Sprint("customer-", n%7), Payload: json.RawMessage(fmt.Sprintf(`{"n": %d}`, n)), CreatedAt: time.Unix(1e9, 0)}
}

func TestSink(t *testing.T) { testSink(t, nil) }

func TestSinkIntoQuorumQueue(t *testing.T) { testSink(t, amqp.Table{"x-queue-type": "quorum"}) }

func testSink(t *testing.T, args amqp.Table) {
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		o := newOutside(t, args)
		s := o.sink(func(c *SinkConfig) {
			c.Mapping.Headers = map[string]string{"x": `{{if eq .Kind "bad"}}{{.Headers.none}}{{end}}`}
		})
		refused := false
		return sinktest.Fixture{
			Sink: s, Delivered: o.count,
			Delivery: func(n int) posthaste.RawDelivery {
				d := delivery(n)
				if refused && n == 1 {
					d.Payload = bytes.Repeat([]byte("x"), 400_000)
				}
				return d
			},
			FailForGood: func() { refused = true },
			Bad: func(n int) posthaste.RawDelivery {
				d := delivery(n)
				if n%4 == 0 { // the template names a header that it does not have
					d.Kind = "bad"
					return d
				}
				d.Kind = strings.Repeat("x", 300)
				return d
			},
			FailTemporarily: func() { o.proxy.CutBefore() },
			Hang:            o.proxy.Hang,
			BreakConnections: func() {
				o.proxy.CutAll()
				for _, l := range s.links.Current() { // until it has noticed
					for l.lost() == nil {
						time.Sleep(time.Millisecond)
					}
				}
			},
		}
	})
}

func deliver(t *testing.T, s *Sink, batch ...posthaste.RawDelivery) []posthaste.SinkResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return s.Deliver(ctx, batch)
}

func TestWhatGoesAlong(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	s := o.sink(func(c *SinkConfig) {
		c.Mapping.Headers = map[string]string{"tenant": `{{index .Headers "t"}}`, "none": ""}
	})
	d := delivery(7)
	d.Attempt, d.Reference, d.ContentType, d.Payload = 2, "A-7", "application/octet-stream", []byte{0, 1, 255}
	d.Headers = map[string]string{"t": "acme", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	if r := deliver(t, s, d); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	got := o.all()[0]
	want := amqp.Table{"t": "acme", "tenant": "acme", "traceparent": d.Headers["traceparent"], "posthaste-queue": "orders", "posthaste-kind": "order.placed",
		"posthaste-key": "customer-0", "posthaste-reference": "A-7", "posthaste-attempt": "2"}
	if fmt.Sprint(got.Headers) != fmt.Sprint(want) {
		t.Errorf("headers %v, want %v", got.Headers, want)
	}
	if got.MessageId != "7" || got.ContentType != d.ContentType || got.Type != d.Kind || !bytes.Equal(got.Body, d.Payload) || !got.Timestamp.Equal(d.CreatedAt) || got.DeliveryMode != amqp.Persistent {
		t.Errorf("got %+v", got)
	}
}

// What no queue gets is no success, in whatever order return and confirm are
// looked at, and its neighbours are.
func TestUnroutableIsNoSuccess(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	s := o.sink(func(c *SinkConfig) { c.RoutingKey = "{{.Reference}}" })
	var batch []posthaste.RawDelivery
	for n := 1; n <= 2000; n++ {
		d := delivery(n)
		if d.Reference = o.name; n%3 != 0 {
			d.Reference = "nobody-" + o.name
		}
		batch = append(batch, d)
	}
	results := deliver(t, s, batch...)
	for i, r := range results {
		lost := (i+1)%3 != 0
		if lost != (r.Err != nil) || lost && (!strings.Contains(r.Err.Error(), "NO_ROUTE") || posthaste.IsPermanent(r.Err)) {
			t.Fatalf("message %d: %v", i+1, r.Err)
		}
	}
	if got := len(o.all()); got != 666 {
		t.Errorf("the queue has %d", got)
	}
}

func TestNackIsTriedAgain(t *testing.T) {
	t.Parallel()
	o := newOutside(t, amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	results := deliver(t, o.sink(nil), delivery(1), delivery(2), delivery(3), delivery(4))
	var failed int
	for _, r := range results {
		if r.Err != nil {
			failed++
			if posthaste.IsPermanent(r.Err) || !strings.Contains(r.Err.Error(), "basic.nack") {
				t.Error(r.Err)
			}
		}
	}
	if got := len(o.all()); failed != 4-got || failed == 0 {
		t.Errorf("%d failed, %d in the queue", failed, got)
	}
}

// An exchange that is not there fails its own messages alone, whether it never was
// or was deleted meanwhile.
func TestMissingExchange(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	exchange := "x-" + o.name
	s := o.sink(func(c *SinkConfig) { c.Exchange = "{{.Reference}}" })
	batch := func(from int) (all []posthaste.RawDelivery) {
		for n := from; n < from+10; n++ {
			d := delivery(n)
			if n%2 == 0 {
				d.Reference = exchange
			}
			all = append(all, d)
		}
		return all
	}
	if err := o.ch.ExchangeDeclare(exchange, "fanout", false, true, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := o.ch.QueueBind(o.name, "", exchange, false, nil); err != nil {
		t.Fatal(err)
	}
	for i, r := range deliver(t, s, batch(1)...) {
		if r.Err != nil {
			t.Errorf("message %d: %v", i+1, r.Err)
		}
	}
	if err := o.ch.ExchangeDelete(exchange, false, false); err != nil {
		t.Fatal(err)
	}
	deliver(t, s, batch(11)...) // finds out
	for i, r := range deliver(t, s, batch(21)...) {
		if missing := i%2 == 1; missing != (r.Err != nil) || missing && (posthaste.IsPermanent(r.Err) || !strings.Contains(r.Err.Error(), "404 NOT_FOUND")) {
			t.Errorf("message %d: %v", i+21, r.Err)
		}
	}
	for n := 21; n <= 30; n++ {
		if got := o.count(n); got != n%2 {
			t.Errorf("message %d came %d times", n, got)
		}
	}
}

// The broker has the message and its confirm is lost: it is published again, with
// the same id, and never taken for delivered.
func TestConfirmLost(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	s := o.sink(nil)
	o.proxy.CutAfter()
	r := deliver(t, s, delivery(1))
	if r[0].Err == nil || posthaste.IsPermanent(r[0].Err) || !strings.Contains(r[0].Err.Error(), "before the confirm") {
		t.Errorf("got %v", r[0].Err)
	}
	if r := deliver(t, s, delivery(1)); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	if got := o.count(1); got != 2 {
		t.Errorf("it came %d times, want 2", got)
	}
}

// A broker that is away holds the messages in hand, and has them once it is back.
func TestBrokerAway(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	s := o.sink(nil)
	o.proxy.Refuse(true)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if r := s.Deliver(short, []posthaste.RawDelivery{delivery(1)}); !errors.Is(r[0].Err, context.DeadlineExceeded) || !strings.Contains(r[0].Err.Error(), o.proxy.Address()) {
		t.Errorf("got %v", r[0].Err)
	}
	done := make(chan error)
	go func() { done <- deliver(t, s, delivery(2))[0].Err }()
	for !s.links.Away() {
		time.Sleep(time.Millisecond)
	}
	o.proxy.Refuse(false)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if o.count(1) != 0 || o.count(2) != 1 {
		t.Errorf("came: %v", o.all())
	}
}

// torn is a connection on which writing fails once it is broken.
type torn struct {
	net.Conn
	broken atomic.Bool
}

func (c *torn) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, errors.New("the cable is cut")
	}
	return c.Conn.Write(p)
}

// What was only held back to be written when the connection broke is not delivered,
// with confirms and without, wherever in the batch that is noticed.
func TestHeldBackIsNotDelivered(t *testing.T) {
	t.Parallel()
	for _, unsafe := range []bool{false, true} {
		for name, spoil := range map[string]func(jobs []job){
			"at the end":       func([]job) {},
			"in the middle":    func(jobs []job) { jobs[30].msg.Body = make([]byte, 2*maxHeld) },
			"before its write": func(jobs []job) { jobs[30].msg.Headers = amqp.Table{"no": struct{}{}} },
		} {
			o := newOutside(t, nil)
			s := o.sink(func(c *SinkConfig) { c.Unsafe = unsafe })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cable := &torn{}
			l, err := s.target.dialBy(ctx, func(c net.Conn) net.Conn { cable.Conn = c; return cable })
			if err != nil {
				t.Fatal(err)
			}
			var jobs []job
			for n := range 40 {
				d := delivery(n + 1)
				j, err := s.target.prepare(&d)
				if err != nil {
					t.Fatal(err)
				}
				j.place = n
				jobs = append(jobs, j)
			}
			spoil(jobs)
			cable.broken.Store(true)
			results := make([]posthaste.SinkResult, len(jobs))
			if err := s.write(ctx, l, jobs, results); err == nil {
				t.Errorf("unsafe %v, %s: the link passes for whole", unsafe, name)
			}
			l.Close()
			delivered := 0
			for _, r := range results {
				if r.Err == nil {
					delivered++
				}
			}
			if came := len(o.all()); came != 0 || delivered != 0 {
				t.Errorf("unsafe %v, %s: %d messages pass for delivered, and %d came", unsafe, name, delivered, came)
			}
		}
	}
}

// A message above the broker's limit is dead-lettered and repeats no other message.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	small, err := devbroker.StartRabbitMQ(t.Context(), dir, "max_message_size = 300000")
	if err != nil {
		t.Fatal(err)
	}
	defer small.Stop()
	s, err := NewSink(SinkConfig{URL: URL(small.URL()), RoutingKey: "small", Declare: "classic"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	big := delivery(2)
	big.Payload = bytes.Repeat([]byte("x"), 400_000)
	fits := delivery(4)
	fits.Payload = bytes.Repeat([]byte("x"), 290_000)
	r := deliver(t, s, delivery(1), big, delivery(3), fits)
	if r[0].Err != nil || r[2].Err != nil || r[3].Err != nil || !posthaste.IsPermanent(r[1].Err) || !strings.Contains(r[1].Err.Error(), "406 PRECONDITION_FAILED") {
		t.Errorf("got %v", r)
	}
	// Nor does it kill large ones of other batches, which are on their way meanwhile.
	const batches, each = 8, 5
	var all sync.WaitGroup
	for b := range batches {
		all.Go(func() {
			var batch []posthaste.RawDelivery
			for n := range each {
				d := fits
				d.MessageID = posthaste.MessageID(100 + b*each + n)
				if n%2 == b%2 {
					d.Payload = big.Payload
				}
				batch = append(batch, d)
			}
			for n, r := range deliver(t, s, batch...) {
				if guilty := n%2 == b%2; guilty != posthaste.IsPermanent(r.Err) || !guilty && r.Err != nil {
					t.Errorf("batch %d, message %d, too large: %v, got %v", b, n, guilty, r.Err)
				}
			}
		})
	}
	all.Wait()
	conn, err := amqp.Dial(small.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if q, err := ch.QueueDeclarePassive("small", true, false, false, false, nil); err != nil || q.Messages != 3+batches*each/2 {
		t.Errorf("%+v, %v", q, err)
	}
	// Where even less is allowed, the one that is too large is found at its second attempt.
	if out, err := small.Control(t.Context(), "eval", "application:set_env(rabbit, max_message_size, 1000)."); err != nil {
		t.Fatal(err, out)
	}
	s, err = NewSink(SinkConfig{URL: URL(small.URL()), RoutingKey: "small"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	big.Payload = big.Payload[:2000]
	r = deliver(t, s, big)
	if r[0].Err == nil || posthaste.IsPermanent(r[0].Err) {
		t.Fatalf("in company: %v", r[0].Err)
	}
	if r := deliver(t, s, again(big, r[0]), delivery(5)); !posthaste.IsPermanent(r[0].Err) || !strings.Contains(r[0].Err.Error(), "406 PRECONDITION_FAILED") || r[1].Err != nil {
		t.Errorf("alone: %v", r)
	}
}

// While the broker is short of disk or memory nothing is accepted, which the sink says
// with the broker's reason; then it goes on by itself.
func TestAlarms(t *testing.T) {
	testrun.Nightly(t, "it waits for alarms of a broker")
	t.Parallel()
	short, err := devbroker.StartRabbitMQ(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer short.Stop()
	n := 0
	for _, alarm := range []struct {
		reason     string
		set, clear []string
	}{
		{"low on disk", []string{"set_disk_free_limit", "100000GB"}, []string{"set_disk_free_limit", "50MB"}},
		{"low on memory", []string{"set_vm_memory_high_watermark", "0"}, []string{"set_vm_memory_high_watermark", "absolute", "2GB"}},
	} {
		log := &lines{}
		s, err := NewSink(SinkConfig{URL: URL(short.URL()), RoutingKey: "short", Declare: "classic", Connections: 1, Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		control := func(args []string) {
			t.Helper()
			if _, err := short.Control(t.Context(), args...); err != nil {
				t.Fatal(err)
			}
		}
		next := func() posthaste.RawDelivery { n++; return delivery(n) }
		if r := deliver(t, s, next()); r[0].Err != nil || s.Away() {
			t.Errorf("before the alarm: %v, away: %v", r[0].Err, s.Away())
		}
		control(alarm.set)
		// The broker says so to who publishes; what is published until then it keeps unread.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		r := s.Deliver(ctx, []posthaste.RawDelivery{next()})
		cancel()
		if r[0].Err == nil || posthaste.IsPermanent(r[0].Err) || !strings.Contains(r[0].Err.Error(), alarm.reason) {
			t.Errorf("%s: during the alarm: %v", alarm.reason, r[0].Err)
		}
		if said := log.String(); !s.Away() || !strings.Contains(said, "blocks publishers") || !strings.Contains(said, alarm.reason) {
			t.Errorf("%s: away: %v, logged: %s", alarm.reason, s.Away(), said)
		}
		done := make(chan error)
		go func() { done <- deliver(t, s, next())[0].Err }()
		control(alarm.clear)
		if err := <-done; err != nil {
			t.Errorf("%s: after the alarm: %v", alarm.reason, err)
		}
		if said := log.String(); !strings.Contains(said, "takes messages again") || s.Away() {
			t.Errorf("%s: away: %v, logged: %s", alarm.reason, s.Away(), said)
		}
		s.Close()
	}
}

// lines holds the logged lines.
type lines struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.String()
}

func TestSinkCheck(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	at := func(user, path string) func(*SinkConfig) {
		return func(c *SinkConfig) { c.URL = URL("amqp://" + user + "@" + broker.Address() + path) }
	}
	for _, test := range []struct {
		name, field string
		code        posthaste.Code
		change      func(*SinkConfig)
	}{
		{"as it is", "", "", nil},
		{"password", "url", posthaste.CodeInvalid, at("guest:wrong", "/")},
		{"vhost", "url", posthaste.CodeInvalid, at("guest:guest", "/nowhere")},
		{"exchange", "exchange", posthaste.CodeInvalid, func(c *SinkConfig) { c.Exchange = "nowhere" }},
		{"queue", "routing_key", posthaste.CodeInvalid, func(c *SinkConfig) { c.RoutingKey = "nobody" }},
		{"away", "", posthaste.CodeUnavailable, func(c *SinkConfig) { c.URL = "amqp://127.0.0.1:1/" }},
		{"exchange by template", "", "", func(c *SinkConfig) { c.Exchange = "{{.Kind}}" }},
	} {
		configtest.Check(t, test.name, o.sink(test.change), test.code, test.field, "wrong")
	}
}

func TestSinkTLS(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	at := func(host string, trust *tls.Config) *Sink {
		return o.sink(func(c *SinkConfig) { c.URL, c.TLS = URL("amqps://guest:guest@"+certificates.Address(host)+"/"), trust })
	}
	configtest.TLS(t, certificates.Trust(), at)
	if r := deliver(t, at("localhost", certificates.Trust()), delivery(1)); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	if n := o.count(1); n != 1 {
		t.Errorf("it came %d times", n)
	}
}

func TestSinkConfig(t *testing.T) {
	for field, change := range map[string]func(*SinkConfig){
		"url":                func(c *SinkConfig) { c.URL = "http://secret@x" },
		"connections":        func(c *SinkConfig) { c.Connections = -1 },
		"outstanding":        func(c *SinkConfig) { c.Outstanding = 1 << 20 },
		"exchange":           func(c *SinkConfig) { c.Exchange = "{{.Nothing}}" },
		"routing_key":        func(c *SinkConfig) { c.RoutingKey = "{{" },
		"message_id":         func(c *SinkConfig) { c.Mapping.MessageID = "{{.X}}" },
		"headers.a":          func(c *SinkConfig) { c.Mapping.Headers = map[string]string{"a": "{{.X}}"} },
		"headers.CC":         func(c *SinkConfig) { c.Mapping.Headers = map[string]string{"CC": "x"} },
		"cloudevents.source": func(c *SinkConfig) { c.Mapping.CloudEvents = &relay.CloudEvents{} },
		"declare":            func(c *SinkConfig) { c.Declare = "classic" },
	} {
		c := SinkConfig{URL: "amqp://localhost"}
		change(&c)
		_, err := NewSink(c)
		configtest.Refused(t, field, err)
	}
}

package amqp1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	amqp "github.com/Azure/go-amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/relay"
)

func TestRelay(t *testing.T) {
	t.Parallel()
	own, err := devbroker.StartRabbitMQ(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Stop)
	brokertest.RunRelay(t, brokertest.Postgres, brokertest.RelayFixture{
		Server: own,
		Destination: func(t *testing.T) brokertest.Destination {
			o := newOutside(t, own)
			// A crash must not find the queue's own declaration unwritten.
			if err := own.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			return brokertest.Destination{
				Sink:     func(*testing.T) posthaste.Sink { return o.sink(nil) },
				CutAfter: o.proxy.CutAfter,
				Arrived: func(t *testing.T) (all []brokertest.Arrived) {
					o.reopen(own)
					for _, m := range o.all() {
						all = append(all, brokertest.Arrived{ID: m.Properties.MessageID.(string), Key: fmt.Sprint(m.ApplicationProperties[relay.HeaderKey]), Payload: m.GetData()})
					}
					return all
				},
			}
		},
	})
}

// reopen connects again to a broker that was killed.
func (o *outside) reopen(in *devbroker.RabbitMQ) {
	o.t.Helper()
	conn, err := amqp091.Dial(in.URL())
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { conn.Close() })
	if o.ch, err = conn.Channel(); err != nil {
		o.t.Fatal(err)
	}
}

// Two queues of one exchange get the same: one is read by each protocol.
func TestFT4_Headers(t *testing.T) {
	t.Parallel()
	o := newOutside(t, broker)
	exchange, second := o.name+"-exchange", o.name+"-second"
	if err := errors.Join(o.ch.ExchangeDeclare(exchange, "fanout", false, true, false, false, nil), func() error {
		_, err := o.ch.QueueDeclare(second, true, false, false, false, nil)
		return err
	}(), o.ch.QueueBind(o.name, "", exchange, false, nil), o.ch.QueueBind(second, "", exchange, false, nil)); err != nil {
		t.Fatal(err)
	}
	as := func(m *amqp.Message) brokertest.Read {
		r := brokertest.Read{ID: m.Properties.MessageID.(string), ContentType: *m.Properties.ContentType, Payload: m.GetData(), Headers: map[string]string{}}
		for name, value := range m.ApplicationProperties {
			r.Headers[name], _ = value.(string)
		}
		return r
	}
	brokertest.RunHeaders(t, brokertest.HeaderFixture{
		Sink: o.sink(func(c *SinkConfig) { c.Address = "/exchange/" + exchange + "/all" }),
		Refuses: func(d *posthaste.RawDelivery, _, _ string) bool {
			return strings.ContainsFunc(d.ContentType, func(r rune) bool { return r > 127 })
		},
		RefusesFew: true,
		Readers: map[string]func(*testing.T, int) []brokertest.Read{
			"AMQP 0-9-1": func(*testing.T, int) (all []brokertest.Read) {
				for _, m := range o.all() {
					all = append(all, as(m))
				}
				return all
			},
			"AMQP 1.0": func(t *testing.T, n int) (all []brokertest.Read) {
				receiver := o.receiver("/amq/queue/"+second, n)
				for range n {
					m, err := receiver.Receive(t.Context(), nil)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, as(m))
				}
				return all
			},
		},
	})
}

// receiver returns a consumer by AMQP 1.0.
func (o *outside) receiver(address string, credit int) *amqp.Receiver {
	o.t.Helper()
	conn, err := amqp.Dial(o.t.Context(), "amqp://guest:guest@"+broker.Address(), nil)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { conn.Close() })
	session, err := conn.NewSession(o.t.Context(), nil)
	if err != nil {
		o.t.Fatal(err)
	}
	receiver, err := session.NewReceiver(o.t.Context(), address, &amqp.ReceiverOptions{Credit: int32(credit)})
	if err != nil {
		o.t.Fatal(err)
	}
	return receiver
}

// rewriter forwards connections to the broker, and replaces the accepted outcomes that the
// broker sends by another one.
func rewriter(t *testing.T, outcome byte) (address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", broker.Address())
			if err != nil {
				client.Close()
				return
			}
			go func() { _, _ = io.Copy(server, client); server.Close() }()
			go func() {
				defer client.Close()
				buffer := make([]byte, 64<<10)
				for {
					n, err := server.Read(buffer)
					if err != nil {
						return
					}
					_, _ = client.Write(bytes.ReplaceAll(buffer[:n], []byte{0, 0x53, 0x24}, []byte{0, 0x53, outcome}))
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// Each outcome has a result of its own. RabbitMQ 3 accepts every message, so a proxy
// replaces its outcomes.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	o := newOutside(t, broker)
	for outcome, words := range map[byte]string{0x24: "", 0x25: "rejected the message: no reason given", 0x26: "released", 0x27: "undeliverable here: false"} {
		s := o.sink(func(c *SinkConfig) { c.URL = URL("amqp1://guest:guest@" + rewriter(t, outcome)) })
		for _, r := range deliver(t, s, delivery(1), delivery(2)) {
			if words != "" {
				wantRetried(t, r, words)
			} else if r.Err != nil {
				t.Error(r.Err)
			}
		}
	}
	s := o.sink(nil)
	for _, test := range []struct {
		state     amqp.DeliveryState
		permanent bool
	}{
		{&amqp.StateRejected{Error: &amqp.Error{Condition: amqp.ErrCondMessageSizeExceeded, Description: "too large"}}, true},
		{&amqp.StateRejected{Error: &amqp.Error{Condition: amqp.ErrCondResourceLimitExceeded, Description: "full"}}, false},
		{&amqp.StateModified{UndeliverableHere: true}, true},
		{&amqp.StateReceived{}, false},
	} {
		if err := s.target.outcome(test.state); err == nil || posthaste.IsPermanent(err) != test.permanent {
			t.Errorf("%v: %v", test.state, err)
		}
	}
}

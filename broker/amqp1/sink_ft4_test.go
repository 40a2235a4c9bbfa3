package amqp1

import (
	"errors"
	"strings"
	"testing"

	amqp "github.com/Azure/go-amqp"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
)

// Two queues of one exchange get the same: one is read by each protocol.
func TestFT4_Headers(t *testing.T) {
	t.Parallel()
	o := newSinkQueue(t, broker)
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
func (o *sinkQueue) receiver(address string, credit int) *amqp.Receiver {
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

package amqp1

import (
	"bytes"
	"io"
	"net"
	"testing"

	amqp "github.com/Azure/go-amqp"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

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
	o := newSinkQueue(t, broker)
	for outcome, words := range map[byte]string{0x24: "", 0x25: "rejected the message: no reason given", 0x26: "released", 0x27: "undeliverable here: false"} {
		s := o.sink(func(c *SinkConfig) { c.URL = URL("amqp1://guest:guest@" + rewriter(t, outcome)) })
		for _, r := range sinktest.Deliver(t, s, sinktest.Delivery(1), sinktest.Delivery(2)) {
			if words != "" {
				sinktest.WantRetried(t, r, words)
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

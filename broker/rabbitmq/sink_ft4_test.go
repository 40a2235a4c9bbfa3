package rabbitmq

import (
	"fmt"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
)

// Each client reads one of two queues of an exchange.
func TestFT4_Headers(t *testing.T) {
	t.Parallel()
	byGo := newSinkQueue(t, nil)
	byPython, err := byGo.ch.QueueDeclare("", false, true, false, false, nil) // not exclusive to one connection
	if err != nil {
		t.Fatal(err)
	}
	exchange := strings.ReplaceAll(t.Name(), "/", "-")
	if err := byGo.ch.ExchangeDeclare(exchange, "fanout", false, true, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{byGo.name, byPython.Name} {
		if err := byGo.ch.QueueBind(queue, "", exchange, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	brokertest.RunHeaders(t, brokertest.HeaderFixture{
		Sink: byGo.sink(func(c *SinkConfig) { c.Exchange = exchange }),
		Refuses: func(_ *posthaste.RawDelivery, name, _ string) bool {
			return name == "CC" || name == "BCC" || len(name) > 255
		},
		Readers: map[string]func(*testing.T, int) []brokertest.Read{
			"Go": func(t *testing.T, _ int) (all []brokertest.Read) {
				for _, d := range byGo.all() {
					r := brokertest.Read{ID: d.MessageId, ContentType: d.ContentType, Payload: d.Body, Headers: map[string]string{}}
					for name, value := range d.Headers {
						r.Headers[name], _ = value.(string)
					}
					all = append(all, r)
				}
				return all
			},
			"Python": func(t *testing.T, n int) []brokertest.Read {
				return brokertest.Python(t, "testdata/read.py", broker.URL(), byPython.Name, fmt.Sprint(n))
			},
		},
	})
}

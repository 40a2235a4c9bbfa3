package kafka

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
)

func TestFT4_Headers(t *testing.T) {
	t.Parallel()
	o := newSinkTopic(t, 1)
	brokertest.RunHeaders(t, brokertest.HeaderFixture{
		Sink: o.sink(nil),
		Refuses: func(d *posthaste.RawDelivery, name, value string) bool {
			return name == HeaderContentType && value != d.ContentType
		},
		Replaces: func(name string) bool { return name == HeaderMessageID || name == HeaderContentType },
		Readers: map[string]func(*testing.T, int) []brokertest.Read{
			"Go": func(t *testing.T, n int) (all []brokertest.Read) {
				until(t, "all are read", func() bool { return len(o.all()) >= n })
				for _, record := range o.all() {
					all = append(all, read(record))
				}
				return all
			},
			"Python": func(t *testing.T, n int) []brokertest.Read {
				return brokertest.Python(t, "testdata/read.py", broker.Address(), o.name, fmt.Sprint(n))
			},
		},
	})
}

// read returns the message of a record.
func read(record *kgo.Record) brokertest.Read {
	r := brokertest.Read{Payload: record.Value, Headers: map[string]string{}}
	for _, h := range record.Headers {
		switch h.Key {
		case HeaderMessageID:
			r.ID = string(h.Value)
		case HeaderContentType:
			r.ContentType = string(h.Value)
		default:
			r.Headers[h.Key] = string(h.Value)
		}
	}
	return r
}

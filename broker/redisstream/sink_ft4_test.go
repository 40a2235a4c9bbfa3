package redisstream

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
)

func TestFT4_Headers(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t)
	brokertest.RunHeaders(t, brokertest.HeaderFixture{
		Sink: o.sink(nil),
		Refuses: func(_ *posthaste.RawDelivery, name, _ string) bool {
			return name == FieldMessageID || name == FieldContentType || name == FieldPayload
		},
		Readers: map[string]func(*testing.T, int) []brokertest.Read{
			"Go": func(*testing.T, int) (all []brokertest.Read) {
				for _, entry := range o.all() {
					all = append(all, read(entry))
				}
				return all
			},
			"Python": func(t *testing.T, _ int) []brokertest.Read {
				return brokertest.Python(t, "testdata/read.py", broker.Address(), o.name)
			},
		},
	})
}

// read returns the message of an entry.
func read(entry goredis.XMessage) brokertest.Read {
	r := brokertest.Read{Headers: map[string]string{}}
	for name, value := range entry.Values {
		switch text, _ := value.(string); name {
		case FieldMessageID:
			r.ID = text
		case FieldContentType:
			r.ContentType = text
		case FieldPayload:
			r.Payload = []byte(text)
		default:
			r.Headers[name] = text
		}
	}
	return r
}

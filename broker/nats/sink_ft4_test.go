package nats

import (
	"fmt"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
)

func TestFT4_Headers(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t, nil)
	brokertest.RunHeaders(t, brokertest.HeaderFixture{
		Sink: o.sink(nil),
		Refuses: func(d *posthaste.RawDelivery, name, value string) bool {
			changed := func(s string) bool { return strings.ContainsAny(s, "\r\n") || s != strings.Trim(s, " \t") }
			return changed(value) || changed(d.ContentType) || strings.HasPrefix(strings.ToLower(name), "nats-") ||
				strings.ContainsAny(name, " :\t\r\n\x01\x7f\u00a0öü東京") || strings.EqualFold(name, HeaderContentType) && value != d.ContentType
		},
		Replaces: func(name string) bool { return strings.EqualFold(name, HeaderContentType) },
		Readers: map[string]func(*testing.T, int) []brokertest.Read{
			"Go": func(*testing.T, int) (all []brokertest.Read) {
				for _, m := range o.all() {
					r := brokertest.Read{Payload: m.Data, Headers: map[string]string{}}
					for name, values := range m.Header {
						switch name {
						case "Nats-Msg-Id":
							r.ID = values[0]
						case HeaderContentType:
							r.ContentType = values[0]
						default:
							r.Headers[name] = strings.Join(values, "|")
						}
					}
					all = append(all, r)
				}
				return all
			},
			"Python": func(t *testing.T, n int) []brokertest.Read {
				return brokertest.Python(t, "testdata/read.py", broker.Address(), o.name, fmt.Sprint(n))
			},
		},
	})
}

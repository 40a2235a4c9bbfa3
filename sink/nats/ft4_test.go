package nats

import (
	"fmt"
	"strings"
	"testing"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

func TestFT4_Headers(t *testing.T) {
	t.Parallel()
	o := newOutside(t, nil)
	sinktest.RunHeaders(t, sinktest.Headers{
		Sink: o.sink(nil),
		Refuses: func(d *posthaste.RawDelivery, name, value string) bool {
			changed := func(s string) bool { return strings.ContainsAny(s, "\r\n") || s != strings.Trim(s, " \t") }
			return changed(value) || changed(d.ContentType) || strings.HasPrefix(strings.ToLower(name), "nats-") ||
				strings.ContainsAny(name, " :\t\r\n\x01\x7f\u00a0öü東京") || strings.EqualFold(name, HeaderContentType) && value != d.ContentType
		},
		Replaces: func(name string) bool { return strings.EqualFold(name, HeaderContentType) },
		Readers: map[string]func(*testing.T, int) []sinktest.Read{
			"Go": func(*testing.T, int) (all []sinktest.Read) {
				for _, m := range o.all() {
					r := sinktest.Read{Payload: m.Data, Headers: map[string]string{}}
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
			"Python": func(t *testing.T, n int) []sinktest.Read {
				return sinktest.Python(t, "testdata/read.py", broker.Address(), o.name, fmt.Sprint(n))
			},
		},
	})
}

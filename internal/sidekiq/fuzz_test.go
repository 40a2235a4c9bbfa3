package sidekiq

import (
	"encoding/json"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// Any content of another program's lists and sets becomes a message or is rejected with a
// reason.
func FuzzMessage(f *testing.F) {
	f.Add(`{"class":"Hard","args":[1,"a"],"jid":"b4a577edbccf1d805744efa9","queue":"low","created_at":1765000000.123,"retry_count":3,"error_class":"E","error_message":"no"}`, 1765000000.5, false)
	f.Add(`{"name":"Hard","args":[],"jid":"x","attempt":2}`, 0.0, true)
	f.Add(`{"class":"ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper","wrapped":"Mail","args":[{}],"created_at":1765000000123}`, -1e300, false)
	f.Add(`{"class":"\u0000","args":null}`, 1e300, false)
	f.Fuzz(func(t *testing.T, text string, score float64, jiggler bool) {
		for _, set := range []string{"queue", "schedule", "retry", "dead"} {
			m, err := message(text, where{key: "k", set: set}, score, jiggler)
			if err != nil {
				if posthaste.CodeOf(err) != posthaste.CodeInvalid {
					t.Fatalf("%q: %v", text, err)
				}
				continue
			}
			if m.Kind == "" || m.Queue == "" || m.DedupeKey == "" || !json.Valid(m.Payload.([]byte)) {
				t.Fatalf("%q became %+v", text, m)
			}
		}
	})
}

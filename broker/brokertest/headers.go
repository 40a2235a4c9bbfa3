package brokertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// Read is a message as a client of the broker reads it.
type Read struct {
	ID          string            `json:"id"`
	ContentType string            `json:"content_type"`
	Payload     []byte            `json:"payload"`
	Headers     map[string]string `json:"headers"`
}

// HeaderFixture is a queue, topic or stream to which generated messages are relayed.
type HeaderFixture struct {
	Sink posthaste.Sink
	// Refuses reports whether a message with this header must be refused.
	Refuses func(d *posthaste.RawDelivery, name, value string) bool
	// RefusesFew says that few of the messages must be refused, and perhaps none.
	RefusesFew bool
	// Replaces reports whether the relay replaces this header by its own; nil if it replaces none.
	Replaces func(name string) bool
	// Readers read all n messages that were accepted, by clients of different languages.
	Readers map[string]func(t *testing.T, n int) []Read
}

// RunHeaders relays generated messages in one batch. Each accepted message must be read
// back once, with the headers that were sent, and no refused one may fail a neighbor.
func RunHeaders(t *testing.T, place HeaderFixture) {
	n, seed := 200, uint64(4)
	if testrun.Night() {
		n, seed = 10_000, rand.Uint64()
	}
	t.Logf("%d messages, seed %d", n, seed)
	random := rand.New(rand.NewPCG(seed, 4))
	batch := make([]posthaste.RawDelivery, n)
	want := map[string]Read{}
	for i := range batch {
		d := &batch[i]
		*d = randomMessage(random, posthaste.MessageID(i+1))
		refused := false
		for name, value := range place.sent(d) {
			refused = refused || place.Refuses(d, name, value)
		}
		if !refused {
			want[d.MessageID.String()] = place.expected(d)
		}
	}
	refused := n - len(want)
	if refused < n/100 && !place.RefusesFew || refused > n/2 {
		t.Errorf("%d of %d messages must be refused: the test compares too little", refused, n)
	}
	for i, r := range place.Sink.Deliver(t.Context(), batch) {
		_, accepted := want[batch[i].MessageID.String()]
		if accepted && r.Err != nil || !accepted && !posthaste.IsPermanent(r.Err) {
			t.Errorf("a message with headers %+q has the result %v", batch[i].Headers, r.Err)
		}
	}
	for client, read := range place.Readers {
		seen := map[string]bool{}
		for _, got := range read(t, len(want)) {
			w, known := want[got.ID]
			if !known || seen[got.ID] {
				t.Errorf("%s reads message %q, which was refused or is a duplicate", client, got.ID)
			}
			seen[got.ID] = true
			if got.ContentType != w.ContentType || string(got.Payload) != string(w.Payload) || !maps.Equal(got.Headers, w.Headers) {
				t.Errorf("%s reads %+q, want %+q", client, got, w)
			}
		}
		if len(seen) != len(want) {
			t.Errorf("%s reads %d messages, want %d", client, len(seen), len(want))
		}
	}
}

// ours are the headers that the relay sets, even if the sender has set them.
var ours = map[string]bool{"posthaste-queue": true, "posthaste-kind": true, "posthaste-key": true, "posthaste-reference": true, "posthaste-attempt": true}

// sent returns the headers of a message, with those that the relay sets from its other
// fields.
func (place *HeaderFixture) sent(d *posthaste.RawDelivery) map[string]string {
	headers := maps.Clone(d.Headers)
	maps.DeleteFunc(headers, func(name, _ string) bool { return ours[name] })
	for name, value := range map[string]string{"posthaste-queue": d.Queue, "posthaste-kind": d.Kind, "posthaste-key": d.Key, "posthaste-reference": d.Reference} {
		if value != "" {
			headers[name] = value
		}
	}
	return headers
}

// expected returns a message as it must be read.
func (place *HeaderFixture) expected(d *posthaste.RawDelivery) Read {
	headers := place.sent(d)
	maps.DeleteFunc(headers, func(name, _ string) bool { return place.Replaces != nil && place.Replaces(name) })
	return Read{ID: d.MessageID.String(), ContentType: d.ContentType, Payload: d.Payload, Headers: headers}
}

// randomMessage returns a message with random headers: any text without NUL, as senders may
// use.
func randomMessage(random *rand.Rand, id posthaste.MessageID) posthaste.RawDelivery {
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	d := posthaste.RawDelivery{MessageID: id, Queue: "orders", Attempt: 1, CreatedAt: time.Unix(1e9, 0), Payload: fmt.Appendf(nil, `{"n": %d}`, id),
		ContentType: pick("application/json", "application/json", "text/plain; charset=utf-8", "application/octet-stream"),
		Kind:        pick("", "order.placed", "größe", "a b"), Key: pick("", "customer-7", "東京", "=?utf-8?q?a?="), Reference: pick("", "order-7", `"quoted"`, "a, b; c=d")}
	if random.IntN(20) == 0 {
		strange := pick(" a", "a ", "a\t", "a\r\nb: c", "a\n", " ", "\u00a0a\u3000", "\va\f", "\x1ca\x1f", "a\x7f")
		*[]*string{&d.Kind, &d.Key, &d.Reference, &d.ContentType}[random.IntN(4)] = strange
	}
	d.Headers = map[string]string{}
	for range random.IntN(5) {
		name := pick("tenant", "Tenant", "X-Request-Id", "traceparent", "a.b-c_d", "UPPER", "0", "!#$%&'*+-.^_`|~")
		if random.IntN(3) == 0 {
			name = pick("posthaste-attempt", "posthaste-kind", "message-id", "message_id", "content-type", "content-type", "content-type", "content-type", "Content-Type", "content_type", "payload",
				"x-death", "x-delay", "x-match", "x-first-death-queue", "ce_id", "cloudEvents:id", "cc", "Bcc", "timestamp", "id", "*", "__proto__")
		}
		if random.IntN(12) == 0 {
			name = pick("CC", "CC", "BCC", "BCC", "Nats-Msg-Id", "nats-rollup", "Nats-Expected-Last-Sequence", "größe", "東京", "a b", "a:b", " a", "a ", ":", "a\r\nb", "\n", "\ta", "a\x01", "a\x7f", "a\u00a0", strings.Repeat("n", 255), strings.Repeat("n", 256), strings.Repeat("ü", 130))
		}
		value := ""
		for range random.IntN(5) {
			value += pick("word", "größe", "東京", "🚀", " ", "  ", "\u00a0", `"`, `\`, ",", ";", ":", "=", "%20", "{}", "1", "true", "null", "=?utf-8?q?a?=", strings.Repeat("long ", random.IntN(200)))
		}
		if random.IntN(25) == 0 {
			value += pick("\r\nx: y", "\n", "\r", "\t", "\v", "\f", "\x01", "\x1c", "\x1d", "\x1e", "\x1f", "\x7f", "\u2028", "\u3000", "\u0085") + pick("", "z")
		}
		if strings.EqualFold(name, "content-type") && random.IntN(2) == 0 {
			value = d.ContentType
		}
		d.Headers[name] = value
	}
	return d
}

// Python runs a script with Debian's Python, for which scripts/needs installs the
// clients of brokers, and decodes the messages that it prints as JSON, one a line.
func Python(t *testing.T, script string, arguments ...string) []Read {
	t.Helper()
	program := "/usr/bin/python3"
	if _, err := os.Stat(program); err != nil {
		program = "python3"
	}
	python := exec.CommandContext(t.Context(), program, append([]string{script}, arguments...)...)
	python.Stderr = os.Stderr
	out, err := python.Output()
	if err != nil {
		t.Fatalf("%s %s: %v", program, script, err)
	}
	var all []Read
	for lines := json.NewDecoder(strings.NewReader(string(out))); lines.More(); {
		var r Read
		if err := lines.Decode(&r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "1.5h": 90 * time.Minute, "1h30m": 90 * time.Minute, "0": 0, "0s": 0, "-5s": -5 * time.Second,
		"5 minutes": 5 * time.Minute, "1 minute": time.Minute, " 2 hours ": 2 * time.Hour, "1 day 2 hours": 26 * time.Hour,
		"1 day 02:03:04.5": 26*time.Hour + 3*time.Minute + 4500*time.Millisecond, "00:05:00": 5 * time.Minute, "01:30": 90 * time.Minute,
		"-00:00:01": -time.Second, "2 weeks": 336 * time.Hour, "250 ms": 250 * time.Millisecond, "1.5 seconds": 1500 * time.Millisecond,
		"3d": 72 * time.Hour, "10us": 10 * time.Microsecond, "1 Hour": time.Hour,
		"PT30S": 30 * time.Second, "PT1H30M": 90 * time.Minute, "P1DT12H": 36 * time.Hour, "P2W": 336 * time.Hour, "PT0.5S": time.Second / 2, "PT0,5S": time.Second / 2, "pt5m": 5 * time.Minute, "P0D": 0,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", " ", "5", "1 month", "2 years", "1 fortnight", "minutes", "1:2:3:4", "00:61:00", "00:00:60", "::", "1e3 s", "NaN s", "300000 days", "5 minutes x", "--1s", "1.2.3 s",
		"P", "PT", "P1", "PT5", "P1H", "PT1D", "P1M", "P1Y", "PT1S1M", "P1DT", "PT5MS", "P-", "PT1:00H"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q passes as %s", text, got)
		}
	}
}

// An unknown field is refused with the names of those that exist, also of an inner object.
func TestUnknownFieldsAreRefusedWithTheKnownOnes(t *testing.T) {
	t.Parallel()
	_, _, err := ParseMessages("q", []byte(`{"payload":1,"prioritty":2}`))
	const known = "backoff, content_type, dedupe_key, dedupe_window, delay, headers, key, kind, max_attempts, payload, priority, reference, send_at, terms, timeout, unique, wake"
	if err == nil || !strings.Contains(err.Error(), `"prioritty" is unknown; expected one of `+known) {
		t.Error(err)
	}
	if _, err = ParseQueueOptions([]byte(`{"backoff":{"bass":"1s"}}`)); err == nil || !strings.Contains(err.Error(), `"backoff.bass" is unknown; expected one of base, max`) {
		t.Error(err)
	}
}

func TestTextsAreNotAltered(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`"\ud83d\ude00"`: "😀", `"\ufffd"`: "\ufffd", `"\\ud800 \ufffd"`: "\\ud800 \ufffd", `"�"`: "�"} {
		var m posthaste.Message
		if err := ParseOptions([]byte(`{"key":`+text+`}`), &m); err != nil || m.Key != want {
			t.Errorf("%s: %q, %v", text, m.Key, err)
		}
	}
	for _, text := range []string{`"\u0000"`, `"\ud800"`, `"\udc00\ud800"`, `"\ud800\ud800"`, `"\ud800x"`, `"\ufffd\udfff"`} {
		if err := ParseOptions([]byte(`{"key":`+text+`}`), &posthaste.Message{}); posthaste.CodeOf(err) != posthaste.CodeInvalid {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestNullCountsAsAbsent(t *testing.T) {
	t.Parallel()
	messages, single, err := ParseMessages("q", []byte(` {"payload":null,"key":null,"headers":null,"terms":null,"delay":null,"send_at":"2030-01-01T00:00:00Z","wake":null} `))
	if err != nil || !single {
		t.Fatal(err)
	}
	if m := messages[0]; string(m.Payload.(json.RawMessage)) != "null" || m.Headers != nil || m.Terms != nil || m.NoWake || m.SendAt.IsZero() {
		t.Fatalf("%+v", m)
	}
}

func TestOptionsHoldNoPayload(t *testing.T) {
	t.Parallel()
	var e *posthaste.Error
	if err := ParseOptions([]byte(`{"payload":1}`), &posthaste.Message{}); !errors.As(err, &e) || e.Field != "payload" {
		t.Fatal(err)
	}
}

// A payload that is declared as JSON and is not valid JSON is shown as bytes, and never breaks
// a list.
func TestPayloadThatIsNoJSON(t *testing.T) {
	t.Parallel()
	for _, stored := range []string{"", "{", "\"\xff\"", "1 2"} {
		value, encoding := Payload("application/json", []byte(stored))
		var back []byte
		if encoding != "base64" || json.Unmarshal(value, &back) != nil || string(back) != stored {
			t.Errorf("%q: %s %s", stored, encoding, value)
		}
	}
}

// Whatever is accepted is whole: a message that is stored has only what the
// body said, and reading it never panics.
func FuzzParseMessages(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[{}]`, `[]`, `{"payload":{"a":[1,2,{"b":null}]},"key":"k","kind":"x","headers":{"a":"b"},"reference":"r","terms":["t"],"delay":"5 minutes","priority":3,"dedupe_key":"d","dedupe_window":"1h","wake":false}`,
		`{"payload":"AAEC","content_type":"image/png"}`, `{"send_at":"2030-01-01T00:00:00.5+01:00"}`, `{"key":"\ud800"}`, `{"key":"a","key":"b"}`,
		`{"priority":1}`, `[1]`, `null`, `{"headers":{"a":1}}`, `{"delay":"-1s"}`, `{"payload":1}x`, "\xff", `{"delay":"01:02:03"}`, `{"terms":[`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		messages, single, err := ParseMessages("q", data)
		if err != nil {
			mustBeClear(t, err)
			return
		}
		if !json.Valid(data) || !utf8.Valid(data) {
			t.Fatalf("accepted invalid JSON: %q", data)
		}
		if single != (bytes.TrimSpace(data)[0] == '{') || len(messages) == 0 {
			t.Fatalf("%d messages, single %v", len(messages), single)
		}
		for _, m := range messages {
			if m.Queue != "q" || m.Delay < 0 || m.Delay > 0 && !m.SendAt.IsZero() || !utf8.ValidString(m.Key) {
				t.Fatalf("%+v", m)
			}
			body, contentType, err := m.Body()
			if err != nil {
				t.Fatal(err)
			}
			if posthaste.IsJSON(contentType) && !json.Valid(body) {
				t.Fatalf("payload %q of type %q", body, contentType)
			}
			value, _ := Payload(contentType, body)
			if !json.Valid(value) {
				t.Fatalf("payload is shown as %q", value)
			}
		}
	})
}

func FuzzParseQueueOptions(f *testing.F) {
	for _, seed := range []string{``, `{}`, `{"max_attempts":5,"backoff":{"base":"1s","max":"1 hour"},"timeout":"30s","max_payload":1048576,"lanes":4}`,
		`{"ordered":true}`, `{"lanes":0}`, `{"backoff":[]}`, `{"max_attempts":1e2}`, `{"timeout":"0s"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		q, err := ParseQueueOptions(data)
		if err != nil {
			mustBeClear(t, err)
			return
		}
		if q.MaxAttempts < 0 || q.MaxAttempts > 1000 || q.Lanes < 0 || q.Lanes > 64 || q.MaxPayload < 0 || q.MaxPayload > posthaste.MaxPayloadBytes || q.Timeout < 0 || q.BackoffBase < 0 || q.BackoffMax < 0 {
			t.Fatalf("%+v", q)
		}
	})
}

// A change of a message has the fields that are given, and null removes one.
func TestParseUpdate(t *testing.T) {
	t.Parallel()
	some, none, two, zero := "a", "", 2, 0
	for text, want := range map[string]posthaste.MessageUpdate{
		`{}`:                 {},
		`{"key": "a"}`:       {Key: &some},
		`{"kind": null}`:     {Kind: &none},
		`{"reference": ""}`:  {Reference: &none},
		`{"priority": 2}`:    {Priority: &two},
		`{"priority": null}`: {Priority: &zero},
		`{"headers": {"x": "y"}, "terms": ["t"]}`:     {Headers: map[string]string{"x": "y"}, Terms: []string{"t"}},
		`{"headers": null, "terms": null}`:            {Headers: map[string]string{}, Terms: []string{}},
		`{"headers": {}, "terms": []}`:                {Headers: map[string]string{}, Terms: []string{}},
		`{"payload": null}`:                           {Payload: json.RawMessage("null")},
		`{"payload": "aGk=", "content_type": "a"}`:    {Payload: []byte("hi"), ContentType: &some},
		`{"payload": {"a": 1}, "content_type": null}`: {Payload: json.RawMessage(`{"a": 1}`), ContentType: &none},
	} {
		if got, err := ParseUpdate([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s became %+v, %v", text, got, err)
		}
	}
	if _, err := ParseUpdate([]byte(`{"color": 1}`)); err == nil || !strings.Contains(err.Error(), "content_type, headers, key, kind, payload, priority, reference, terms") {
		t.Errorf("an unknown field: %v", err)
	}
}

// A fault in an inner object is told once, with its path. Zero, which would mean the default, is
// refused.
func TestParseInnerOptions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"payload": 1, "unique": {"max_delay": "0s"}}`:            "unique.max_delay must be above zero",
		`{"payload": 1, "unique": {"shade": 1}}`:                   `"unique.shade" is unknown; expected one of exists, key, max_delay, until`,
		`[{"payload": 1}, {"payload": 1, "unique": {"until": 1}}]`: "messages[1].unique.until must be a string, got a number",
		`{"payload": 1, "backoff": {"base": "0s"}}`:                "backoff.base must be above zero",
		`{"payload": 1, "backoff": {"max": "0"}}`:                  "backoff.max must be above zero",
	} {
		if _, _, err := ParseMessages("q", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s ended with %v, want %s", text, err, want)
		}
	}
}

func TestParseQueueUpdate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]posthaste.QueueLimits{
		`{}`:                            {},
		`{"concurrency": 5}`:            {Concurrency: 5},
		`{"rate_limit": {"limit": 50}}`: {RateLimit: posthaste.Rate{Limit: 50}},
		`{"key_concurrency": 2, "key_rate_limit": {"limit": 1, "per": "1 hour", "burst": 3}}`: {KeyConcurrency: 2, KeyRateLimit: posthaste.Rate{Limit: 1, Per: time.Hour, Burst: 3}},
	} {
		if got, err := ParseQueueUpdate([]byte(text)); err != nil || got.Options.Limits != want || got.Reset != nil {
			t.Errorf("%s became %+v, %v", text, got, err)
		}
	}
	for text, field := range map[string]string{
		`{"rate_limit": {"per": "1s"}}`: "rate_limit.limit", `{"rate_limit": {"limit": 0}}`: "rate_limit.limit", `{"rate_limit": {"limit": null}}`: "rate_limit.limit",
		`{"rate_limit": {"limit": 1, "per": "0s"}}`: "rate_limit.per", `{"concurrency": 0}`: "concurrency", `{"color": 1}`: "color", `{"backoff": {"color": 1}}`: "backoff.color",
	} {
		var e *posthaste.Error
		if _, err := ParseQueueUpdate([]byte(text)); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s ended with %v, want a fault of %s", text, err, field)
		}
	}
	reset := `{"max_age": null, "retain_payload": false, "on_dead": "continue", "backoff": {"max": null}, "timeout": "1m"}`
	if got, err := ParseQueueUpdate([]byte(reset)); err != nil || !reflect.DeepEqual(got.Options, posthaste.QueueOptions{Timeout: time.Minute}) ||
		!slices.Equal(got.Reset, []string{"backoff.max", "max_age", "retain_payload", "on_dead"}) {
		t.Errorf("%s became %+v, %v", reset, got, err)
	}
	if got, err := ParseQueueUpdate([]byte(`{"backoff": null}`)); err != nil || !slices.Equal(got.Reset, []string{"backoff"}) {
		t.Errorf("resetting the backoff became %+v, %v", got, err)
	}
}

func FuzzParseQueueUpdate(f *testing.F) {
	for _, seed := range []string{`{}`, `{"concurrency":5,"rate_limit":{"limit":50,"per":"1 second","burst":5}}`, `{"key_concurrency":1,"key_rate_limit":{"limit":1,"per":"1 h"}}`,
		`{"concurrency":0}`, `{"rate_limit":{"per":"1s"}}`, `{"rate_limit":5}`, `{"rate_limit":{"limit":1,"per":"0s"}}`, `{"rate_limit":{"limit":1e300}}`, `{"lanes":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		update, err := ParseQueueUpdate(data)
		l := update.Options.Limits
		if err != nil {
			mustBeClear(t, err)
			return
		}
		for _, n := range []int{l.Concurrency, l.KeyConcurrency} {
			if n < 0 || n > 100_000 {
				t.Fatalf("%+v", l)
			}
		}
		for _, r := range []posthaste.Rate{l.RateLimit, l.KeyRateLimit} {
			if r != (posthaste.Rate{}) && (r.Limit < 1 || r.Per < 0 || r.Burst < 0 || r.Burst > 1_000_000) {
				t.Fatalf("%+v", l)
			}
		}
	})
}

func FuzzParseSubscriptionOptions(f *testing.F) {
	for _, seed := range []string{``, `{}`, `{"from":"oldest"}`, `{"from":"now","scheduled":true,"max_lag":"24 hours"}`, `{"filter":{"kind":"paid"}}`,
		`{"filter":{"kind":["paid","refunded"],"headers":{"region":["eu","us"],"a":"b"}}}`, `{"filter":{}}`, `{"filter":{"headers":{}}}`, `{"filter":{"kind":[]}}`,
		`{"filter":{"kind":[1]}}`, `{"filter":[]}`, `{"max_lag":"0s"}`, `{"filter":{"headers":{"a":null}}}`, `{"filter":{"headers":{"a":"b","a":"c"}}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSubscriptionOptions(data)
		if err != nil {
			mustBeClear(t, err)
			return
		}
		if s.MaxLag < 0 || !utf8.ValidString(s.From) {
			t.Fatalf("%+v", s)
		}
		// A filter that lets nothing through, or everything, was not meant.
		for name, words := range s.Filter.Headers {
			if len(words) == 0 {
				t.Fatalf("header %q of the filter has no words: %q", name, data)
			}
		}
		if bytes.Contains(data, []byte(`"filter":{`)) && len(s.Filter.Kinds)+len(s.Filter.Headers) == 0 {
			t.Fatalf("a filter is lost: %q", data)
		}
	})
}

func FuzzParseSchedule(f *testing.F) {
	for _, seed := range []string{`{"queue":"q","spec":"@daily"}`, `{"queue":"q","spec":"*/5 * * * *","time_zone":"Europe/Berlin","catch_up":"all","payload":{"a":[1]},"key":"k","kind":"x","headers":{"a":"b"},"priority":3}`,
		`{}`, `{"queue":"q","spec":"every 1 h","payload":null}`, `{"queue":"q","spec":"x","delay":"1s"}`, `{"queue":"q","spec":"x","content_type":"image/png","payload":"AAEC"}`,
		`{"queue":"No","spec":"x"}`, `{"queue":"q","spec":1}`, `{"queue":"q","spec":"x","content_type":"application/vnd.a+json","payload":1e999}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSchedule("name", data)
		if err != nil {
			if posthaste.CodeOf(err) != posthaste.CodeTooLarge {
				mustBeClear(t, err)
			}
			return
		}
		body, contentType, err := s.Message.Body()
		if s.Name != "name" || s.Message.Queue == "" || err != nil || !posthaste.IsJSON(contentType) || !json.Valid(body) {
			t.Fatalf("%q became %+v with %q, %v", data, s, body, err)
		}
	})
}

func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{"30s", "1.5h", "5 minutes", "1 day 02:03:04.5", "-1:00", "2 weeks", "1 month", "µs", "9223372036854775807 us", "1e400 s"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err != nil {
			return
		}
		// A duration that is printed is parsed as the same duration.
		if again, err := ParseDuration(d.String()); err != nil || again != d {
			t.Fatalf("%q is %s, and that is %s, %v", text, d, again, err)
		}
	})
}

// mustBeClear: an error of a parser can be acted on.
func mustBeClear(t *testing.T, err error) {
	t.Helper()
	var e *posthaste.Error
	if !errors.As(err, &e) || e.Code != posthaste.CodeInvalid && e.Code != posthaste.CodeUnsupported || e.Message == "" {
		t.Fatalf("not clear: %#v", err)
	}
}

// Times are those of RFC 3339, no more and no less.
func TestParseTime(t *testing.T) {
	t.Parallel()
	want := time.Date(2030, 1, 2, 3, 4, 5, 500_000_000, time.UTC)
	for _, text := range []string{"2030-01-02T03:04:05.5Z", "2030-01-02t03:04:05.5z", "2030-01-02T04:04:05.500+01:00"} {
		if got, err := ParseTime(text); err != nil || !got.Equal(want) {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", " ", "2030-01-02T03:04:05,5Z", "2030-01-02 03:04:05Z", "2030-01-02T03:04:05", "2030-01-02", "2030-02-30T00:00:00Z"} {
		if got, err := ParseTime(text); err == nil {
			t.Errorf("%q passes as %s", text, got)
		}
	}
}

// FuzzSplit compares the parts of objects and arrays with those of encoding/json.
func FuzzSplit(f *testing.F) {
	same := func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }
	for _, seed := range []string{`{}`, `[]`, ` [ ] `, `{"a":1}`, ` { "a" : [1,{"b":2}] , "c\"\\":"}],:{[" , "\u0064" : null } `, `[[],{},"a,b",[1,2],-1e5,true]`, `{"a":{"a":{"a":[]}},"":""}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if Check(data) != nil {
			return
		}
		switch kindOf(data) {
		case "an object":
			var want map[string]json.RawMessage
			if err := json.Unmarshal(data, &want); err != nil {
				t.Fatal(err)
			}
			names := 0
			for dec := json.NewDecoder(bytes.NewReader(data)); ; {
				if token, _ := dec.Token(); token == json.Delim('}') {
					break
				} else if token == json.Delim('{') {
					continue
				}
				var value json.RawMessage
				if err := dec.Decode(&value); err != nil {
					t.Fatal(err)
				}
				names++
			}
			o, err := ParseObject("", data)
			if names > len(want) && err != nil && strings.Contains(err.Error(), "twice") {
				return
			}
			if err != nil || names > len(want) || len(o.order) != names || !maps.EqualFunc(o.fields, want, same) {
				t.Fatalf("%q became %+v, want %q, %v", data, o, want, err)
			}
		case "an array":
			var want []json.RawMessage
			if err := json.Unmarshal(data, &want); err != nil {
				t.Fatal(err)
			}
			if got, err := ParseArray("", data); err == nil && !slices.EqualFunc(got, want, same) || err != nil && len(want) <= MaxBatch {
				t.Fatalf("%q became %q, want %q, %v", data, got, want, err)
			}
		}
	})
}

// What a client encodes is what a server reads.
func TestEncodedRequests(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 31, 12, 0, 0, 123456789, time.UTC)
	for _, m := range []posthaste.Message{
		{Payload: json.RawMessage("null")},
		{Payload: json.RawMessage(`{"a":  "<b>&\u2028"}`), ContentType: "application/json; charset=utf-8"},
		{Payload: []byte{0, 255}, ContentType: "image/png"},
		{Payload: json.RawMessage("1"), Key: "k\"", Kind: "paid", Headers: map[string]string{"a": "ü"}, Reference: "r", Terms: []string{"t"}, SendAt: at, Priority: 3},
		{Payload: json.RawMessage("1"), Delay: 1500*time.Millisecond + 1, DedupeKey: "d", DedupeWindow: time.Hour, MaxAttempts: 3, Timeout: time.Minute},
		{Payload: json.RawMessage("1"), Backoff: posthaste.Backoff{Base: time.Second}, NoWake: true, Unique: &posthaste.Unique{}},
		{Payload: json.RawMessage("1"), Unique: &posthaste.Unique{Key: "u", Until: posthaste.UntilStarted, Exists: posthaste.ReplaceExisting, MaxDelay: time.Hour}},
	} {
		m.Queue = "q"
		if m.ContentType == "" {
			m.ContentType = posthaste.ContentTypeJSON
		}
		text, err := EncodeMessage(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseMessage("q", text); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s became %+v, %v, and was %+v", text, got, err, m)
		}
	}
	batch, err := EncodeBatch([]posthaste.Message{{Payload: 1}, {Payload: 2}})
	if got, fault := ParseBatch("q", batch); err != nil || fault != nil || len(got) != 2 || string(got[1].Payload.(json.RawMessage)) != "2" {
		t.Errorf("%s became %+v, %v, %v", batch, got, err, fault)
	}
	// A payload that is no JSON cannot add fields.
	if text, err := EncodeMessage(posthaste.Message{Payload: json.RawMessage(`1,"key":"k"`)}); err == nil {
		t.Errorf("a payload with a second field became %s", text)
	}
	schedule := posthaste.Schedule{Name: "s", Spec: "@daily", TimeZone: "UTC", CatchUp: posthaste.CatchUpSkip,
		Message: posthaste.Message{Queue: "q", ContentType: posthaste.ContentTypeJSON, Payload: json.RawMessage(`{"a": 1}`), Key: "k"}}
	text, err := EncodeSchedule(schedule)
	if got, fault := ParseSchedule("s", text); err != nil || fault != nil || !reflect.DeepEqual(got, schedule) {
		t.Errorf("%s became %+v, %v, %v", text, got, err, fault)
	}
	subscription := posthaste.SubscriptionOptions{From: "oldest", Scheduled: true, MaxLag: time.Hour, Filter: posthaste.Filter{Kinds: []string{"a"}, Headers: map[string][]string{"b": {"c", "d"}}}}
	text, err = Encode(NewSubscriptionRequest(subscription))
	if got, fault := ParseSubscriptionOptions(text); err != nil || fault != nil || !reflect.DeepEqual(got, subscription) {
		t.Errorf("%s became %+v, %v, %v", text, got, err, fault)
	}
	key, kind, none := "k", "paid", ""
	for _, u := range []posthaste.MessageUpdate{
		{Key: &key, Kind: &kind, Reference: &none, Headers: map[string]string{}, Terms: []string{}, Priority: new(int)},
		{Payload: json.RawMessage(`{"a":  1}`), ContentType: new("application/json")},
		{Payload: []byte{0, 255}, ContentType: new("image/png")},
	} {
		text, err := EncodeUpdate(u)
		if got, fault := ParseUpdate(text); err != nil || fault != nil || !reflect.DeepEqual(got, u) {
			t.Errorf("%s became %+v, %v, %v", text, got, err, fault)
		}
	}
}

// What a server shows of a queue is what the engine returned, without options that a client does not
// know.
func TestStoredQueue(t *testing.T) {
	t.Parallel()
	options := posthaste.QueueOptions{Fair: true, MaxAge: time.Hour, Owner: "shop", Limits: posthaste.QueueLimits{Concurrency: 7, KeyRateLimit: posthaste.Rate{Limit: 5, Per: time.Second, Burst: 2}}}
	if err := options.Complete(); err != nil {
		t.Fatal(err)
	}
	queue := posthaste.QueueInfo{Name: "q", Options: options, CreatedAt: time.Unix(1, 0).UTC(), PausedKeys: []string{"k"}, Subscriptions: []posthaste.SubscriptionInfo{{
		Name: "a", Filter: posthaste.Filter{Kinds: []string{"b"}}, MaxLag: time.Hour, Depth: 1, InFlight: 2, Dead: 3, Sent: 4, Done: 5, Retried: 6, Lost: 7, Withdrawn: 8, Expired: 9,
		SentPerSecond: 1.5, DonePerSecond: 2.5, OldestAge: time.Minute, SetAside: []posthaste.SetAside{{Kind: "c", Waiting: 1, OldestAge: time.Second, Known: true}}, CountedAt: time.Unix(2, 0).UTC(),
	}}}
	shown := NewQueue(queue)
	shown.Options["of_the_future"] = 1
	text, err := Encode(shown)
	var read Queue
	if err != nil || json.Unmarshal(text, &read) != nil {
		t.Fatalf("%s, %v", text, err)
	}
	if got, err := read.Stored(); err != nil || !reflect.DeepEqual(got, queue) {
		t.Errorf("%s became %+v, %v", text, got, err)
	}
}

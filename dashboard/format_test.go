package dashboard

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestFormats(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		number(int64(math.MinInt64)): "-9,223,372,036,854,775,808", number(0): "0", number(999): "999", number(1000): "1,000",
		duration(-time.Second): "–", duration(90 * time.Second): "1 m 30 s", duration(25 * time.Hour): "1 d 1 h", duration(1500 * time.Millisecond): "1.5 s", duration(time.Hour): "1 h",
		queueRow{Waiting: 10, DonePerSecond: 2, Subscriptions: 1}.drained(): "5 s", queueRow{Waiting: math.MaxInt64, DonePerSecond: 1e-300}.drained(): "–",
		queueRow{Waiting: 10, DonePerSecond: 2, SentPerSecond: 3}.drained(): "–",
		shellQuote("a'b"): `'a'\''b'`, shellQuote("a-b"): "a-b", shellQuote(""): "''", shellQuote("$(x)"): "'$(x)'", shellQuote("a\nb"): "'a\nb'",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestPretty(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"n":9007199254740993,"s":"a,{\"[","e":[]}`: "{\n  \"n\": 9007199254740993,\n  \"s\": \"a,{\\\"[\",\n  \"e\": []\n}",
		"no JSON": "no JSON",
	} {
		got := pretty([]byte(text))
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if size := indentedSize([]byte(text)); size < len(got) {
			t.Errorf("%q is thought to have %d bytes when it is indented, and has %d", text, size, len(got))
		}
	}
	// Indented, these 20 KB would have 200 MB.
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	if got := pretty([]byte(deep)); got != deep {
		t.Errorf("JSON that nests deeply is indented to %d bytes", len(got))
	}
}

func (r queueRow) drained() string { return duration(r.Drain()) }

// Characters that Go escapes in JSON are readable, and nothing else changes.
func TestPrettyIsReadable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"html":"\u003cp\u003E1 \u0026 2"}`: "{\n  \"html\": \"<p>1 & 2\"\n}",
		`"\\u003c \"\u003c\" \u0022 \u000a"`: `"\\u003c \"<\" \u0022 \u000a"`,
		`not JSON \u003c`:                    `not JSON \u003c`,
	} {
		if got := pretty([]byte(in)); got != want {
			t.Errorf("%s is shown as %s, want %s", in, got, want)
		}
	}
}

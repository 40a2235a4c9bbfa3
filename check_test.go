package posthaste

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// A name is valid if it has 1 to 63 characters of a-z, 0-9, _, - and ., and is not . or ...
// Any other name is rejected with a printable error that has the field.
func FuzzCheckName(f *testing.F) {
	for _, seed := range []string{"", "orders", "a-b_c.d9", "Orders", "or ders", "ordérs", "orders\n", "\xff", "a\x00b", "..", "-", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("é", 32), "ａ"} {
		f.Add(seed)
	}
	rule := regexp.MustCompile(`\A[a-z0-9_.-]{1,63}\z`)
	f.Fuzz(func(t *testing.T, name string) {
		err := CheckName("queue", name)
		if wanted := rule.MatchString(name) && name != "." && name != ".."; wanted != (err == nil) {
			t.Fatalf("%q: %v", name, err)
		}
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Code != CodeInvalid || e.Field != "queue" || !utf8.ValidString(e.Message) || strings.ContainsAny(e.Message, "\x00\n\r")) {
			t.Fatalf("%q is not clear about %q", err, name)
		}
		message := Message{Queue: name, Payload: 1}
		if CodeOf(message.Check()) != CodeOf(err) {
			t.Fatalf("a message to %q: %v", name, message.Check())
		}
	})
}

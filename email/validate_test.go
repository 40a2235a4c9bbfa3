package email

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// good returns a valid mail.
func good() *Email {
	return &Email{From: "ada@example.com", To: []string{"bob@example.com"}, Subject: "Hello", Text: "Hi"}
}

// invalidMail is a change that makes a valid mail invalid, and the fault that it causes.
type invalidMail struct {
	field string
	code  posthaste.Code
	spoil func(*Email)
}

var invalidMails = map[string]invalidMail{
	"no sender":           {"from", posthaste.CodeInvalid, func(e *Email) { e.From = "" }},
	"no recipients":       {"to", posthaste.CodeInvalid, func(e *Email) { e.To = nil }},
	"too many recipients": {"to", posthaste.CodeInvalid, func(e *Email) { e.Bcc = addresses(MaxRecipients) }},
	"bad fourth":          {"to[3]", posthaste.CodeInvalid, func(e *Email) { e.To = append(addresses(3), "no-address") }},
	"bad cc":              {"cc[0]", posthaste.CodeInvalid, func(e *Email) { e.Cc = []string{"a@b@c"} }},
	"bad bcc":             {"bcc[1]", posthaste.CodeInvalid, func(e *Email) { e.Bcc = []string{"a@b", ""} }},
	"bad reply":           {"reply_to", posthaste.CodeInvalid, func(e *Email) { e.ReplyTo = "x" }},
	"injection in from":   {"from", posthaste.CodeInvalid, func(e *Email) { e.From = "Ada\r\nBcc: eve@example.com <ada@example.com>" }},
	"injection in to":     {"to[0]", posthaste.CodeInvalid, func(e *Email) { e.To[0] = "bob@example.com\r\nX: y" }},
	"injection, subject":  {"subject", posthaste.CodeInvalid, func(e *Email) { e.Subject = "Hi\r\nBcc: eve@example.com" }},
	"LF in subject":       {"subject", posthaste.CodeInvalid, func(e *Email) { e.Subject = "Hi\nthere" }},
	"CR in subject":       {"subject", posthaste.CodeInvalid, func(e *Email) { e.Subject = "Hi\rthere" }},
	"NEL in subject":      {"subject", posthaste.CodeInvalid, func(e *Email) { e.Subject = "Hi\u0085there" }},
	"long subject":        {"subject", posthaste.CodeInvalid, func(e *Email) { e.Subject = strings.Repeat("s", MaxSubjectBytes+1) }},
	"subject no UTF-8":    {"subject", posthaste.CodeInvalid, func(e *Email) { e.Subject = "\xff" }},
	"no body":             {"text", posthaste.CodeInvalid, func(e *Email) { e.Text = "" }},
	"NUL in text":         {"text", posthaste.CodeInvalid, func(e *Email) { e.Text = "a\x00b" }},
	"NUL in html":         {"html", posthaste.CodeInvalid, func(e *Email) { e.HTML = "a\x00b" }},
	"header injection":    {"headers.X-Foo", posthaste.CodeInvalid, func(e *Email) { e.Headers = header("X-Foo", "a\r\nBcc: eve@example.com") }},
	"header name":         {"headers.X Foo", posthaste.CodeInvalid, func(e *Email) { e.Headers = header("X Foo", "a") }},
	"header name, colon":  {"headers.X:Foo", posthaste.CodeInvalid, func(e *Email) { e.Headers = header("X:Foo", "a") }},
	"header name, CRLF":   {`headers.X\r\nBcc`, posthaste.CodeInvalid, func(e *Email) { e.Headers = header("X\r\nBcc", "a") }},
	"header name, empty":  {"headers.", posthaste.CodeInvalid, func(e *Email) { e.Headers = header("", "a") }},
	"header value":        {"headers.X-Foo", posthaste.CodeInvalid, func(e *Email) { e.Headers = header("X-Foo", strings.Repeat("v", MaxHeaderValueBytes+1)) }},
	"header twice":        {"headers.x-foo", posthaste.CodeInvalid, func(e *Email) { e.Headers = map[string]string{"X-Foo": "a", "x-foo": "b"} }},
	"too many headers": {"headers", posthaste.CodeInvalid, func(e *Email) {
		e.Headers = map[string]string{}
		for i := range MaxHeaders + 1 {
			e.Headers[fmt.Sprintf("X-%d", i)] = "v"
		}
	}},
	"file without name":       {"attachments[0].filename", posthaste.CodeInvalid, func(e *Email) { e.Attachments = []Attachment{{Content: []byte("x")}} }},
	"file name, path":         {"attachments[0].filename", posthaste.CodeInvalid, func(e *Email) { e.Attachments = file("../../etc/passwd") }},
	"file name, folder":       {"attachments[0].filename", posthaste.CodeInvalid, func(e *Email) { e.Attachments = file("reports/2026.pdf") }},
	"file name, root":         {"attachments[0].filename", posthaste.CodeInvalid, func(e *Email) { e.Attachments = file("/") }},
	"file name, Windows path": {"attachments[0].filename", posthaste.CodeInvalid, func(e *Email) { e.Attachments = file(`C:\boot.ini`) }},
	"file name, parent":       {"attachments[0].filename", posthaste.CodeInvalid, func(e *Email) { e.Attachments = file("..") }},
	"file name, this folder":  {"attachments[0].filename", posthaste.CodeInvalid, func(e *Email) { e.Attachments = file(".") }},
	"file name, blank":        {"attachments[0].filename", posthaste.CodeInvalid, func(e *Email) { e.Attachments = file(" ") }},
	"file name, blank at end": {"attachments[0].filename", posthaste.CodeInvalid, func(e *Email) { e.Attachments = file("a.txt\u00a0") }},
	"file name, CRLF":         {"attachments[0].filename", posthaste.CodeInvalid, func(e *Email) { e.Attachments = []Attachment{{Filename: "a\r\nb", Content: []byte("x")}} }},
	"file name, long": {"attachments[0].filename", posthaste.CodeInvalid, func(e *Email) {
		e.Attachments = []Attachment{{Filename: strings.Repeat("n", MaxFilenameBytes+1), Content: []byte("x")}}
	}},
	"file without content": {"attachments[0].content", posthaste.CodeInvalid, func(e *Email) { e.Attachments = []Attachment{{Filename: "a"}} }},
	"content type": {"attachments[0].content_type", posthaste.CodeInvalid, func(e *Email) {
		e.Attachments = []Attachment{{Filename: "a", ContentType: "pdf", Content: []byte("x")}}
	}},
	"content type, CRLF": {"attachments[0].content_type", posthaste.CodeInvalid, func(e *Email) {
		e.Attachments = []Attachment{{Filename: "a", ContentType: "a/b\r\nX: y", Content: []byte("x")}}
	}},
	"content type, mail": {"attachments[0].content_type", posthaste.CodeInvalid, func(e *Email) {
		e.Attachments = []Attachment{{Filename: "a", ContentType: "message/rfc822", Content: []byte("x")}}
	}},
	"reference, long": {"reference", posthaste.CodeInvalid, func(e *Email) { e.Reference = strings.Repeat("r", posthaste.MaxWordBytes+1) }},
	"send_at":         {"send_at", posthaste.CodeInvalid, func(e *Email) { e.SendAt = time.Date(1066, 1, 1, 0, 0, 0, 0, time.UTC) }},
	"idempotency_key": {"idempotency_key", posthaste.CodeUnsupported, func(e *Email) { e.IdempotencyKey = "k" }},
	"too large, file": {"attachments", posthaste.CodeTooLarge, func(e *Email) { e.Attachments = []Attachment{{Filename: "a", Content: make([]byte, MaxSize)}} }},
	"too large, text": {"text", posthaste.CodeTooLarge, func(e *Email) { e.Text = strings.Repeat("é", MaxSize/5) }},
	"too large, html": {"html", posthaste.CodeTooLarge, func(e *Email) { e.HTML = strings.Repeat("h", MaxSize+1) }},
}

// TestEM1_Refused: a fault is reported with the field's name.
func TestEM1_Refused(t *testing.T) {
	t.Parallel()
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	cases := maps.Clone(invalidMails)
	for i, bad := range badAddresses {
		cases[fmt.Sprintf("address %d", i)] = invalidMail{"to[0]", posthaste.CodeInvalid, func(e *Email) { e.To[0] = bad }}
	}
	for name := range reservedHeaders {
		cases["header "+name] = invalidMail{"headers." + strings.ToUpper(name), posthaste.CodeInvalid, func(e *Email) { e.Headers = header(strings.ToUpper(name), "x") }}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := good()
			c.spoil(e)
			err := e.Validate()
			faults := Faults(err)
			if len(faults) != 1 {
				t.Fatalf("%d faults: %v", len(faults), err)
			}
			f := faults[0]
			if f.Field != c.field || f.Code != c.code {
				t.Fatalf("field %q, code %q (%s), want %q and %q", f.Field, f.Code, f.Message, c.field, c.code)
			}
			if !strings.HasPrefix(err.Error(), c.field+" ") || strings.ContainsAny(err.Error(), "\r\n\x00") {
				t.Fatalf("text %q", err)
			}
		})
	}
}

func TestValidateReportsAllFaults(t *testing.T) {
	t.Parallel()
	e := &Email{To: []string{"x"}, Headers: map[string]string{"Bcc": "a", "Date": "b"}}
	err := e.Validate()
	var fields []string
	for _, f := range Faults(err) {
		fields = append(fields, f.Field)
	}
	if want := []string{"from", "to[0]", "text", "headers.Bcc", "headers.Date"}; !slices.Equal(fields, want) {
		t.Fatalf("fields %q, want %q", fields, want)
	}
	if e := Faults(err)[3]; e.Hint == "" {
		t.Error("a reserved header has no hint")
	}
}

// TestValidateSize: the limit applies to the composed mail, to the byte.
func TestValidateSize(t *testing.T) {
	t.Parallel()
	e := good()
	e.Attachments = []Attachment{{Filename: "a.bin", Content: make([]byte, 1<<20)}}
	small, err := e.Compose(Identity{ID: 1, CreatedAt: time.Unix(0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	// 57 bytes encode to a line of 76 characters and CRLF.
	room := MaxSize - len(small)
	e.Attachments[0].Content = make([]byte, 1<<20+room/78*57)
	if err := e.Validate(); err != nil {
		t.Fatalf("a mail just below the limit: %v", err)
	}
	e.Attachments[0].Content = make([]byte, 1<<20+(room/78+2)*57)
	if err := e.Validate(); posthaste.CodeOf(err) != posthaste.CodeTooLarge {
		t.Fatalf("a mail just above the limit: %v", err)
	}
}

func TestLimitsAreReached(t *testing.T) {
	t.Parallel()
	e := good()
	e.To, e.Cc, e.Bcc = addresses(100), addresses(60), addresses(40)
	e.Subject = strings.Repeat("s", MaxSubjectBytes)
	e.Headers = header(strings.Repeat("N", MaxHeaderNameBytes), strings.Repeat("v", MaxHeaderValueBytes))
	e.Reference = strings.Repeat("r", posthaste.MaxWordBytes)
	e.Attachments = []Attachment{{Filename: strings.Repeat("é", 127), Content: []byte{}}}
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	checkComposed(t, e)
}

func TestRecipientsAndTerms(t *testing.T) {
	t.Parallel()
	e := &Email{
		To:  []string{"Ada <Ada@Example.com>", "ada@example.com", "x"},
		Cc:  []string{"Ada@EXAMPLE.com", `"ada"@example.com`, "用户@例え.jp"},
		Bcc: []string{"Zoë <z@münchen.de>", "z@xn--mnchen-3ya.de"},
	}
	if got, want := e.Recipients(), []string{"Ada@Example.com", "ada@example.com", "用户@例え.jp", "z@xn--mnchen-3ya.de"}; !slices.Equal(got, want) {
		t.Errorf("recipients %q, want %q", got, want)
	}
	if got, want := e.Terms(), []string{"ada@example.com", "x", "用户@xn--r8jz45g.jp", "z@xn--mnchen-3ya.de"}; !slices.Equal(got, want) {
		t.Errorf("terms %q, want %q", got, want)
	}
	if Term("Z@MÜNCHEN.de") != "z@xn--mnchen-3ya.de" {
		t.Error(Term("Z@MÜNCHEN.de"))
	}
	if !e.NeedsSMTPUTF8() {
		t.Error("an address in cc needs SMTPUTF8")
	}
	if field, address := e.SMTPUTF8Address(); field != "cc[2]" || address != "用户@例え.jp" {
		t.Error(field, address)
	}
	if e := (&Email{To: []string{"Zoë <z@münchen.de>"}, Bcc: []string{"用户@例え.jp"}}); e.NeedsSMTPUTF8() {
		t.Error("only the bcc needs SMTPUTF8")
	}
}

func TestFilenameHint(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"../../etc/passwd": `use "passwd"`, `C:\my\boot.ini`: `use "boot.ini"`, "a/": `use "a"`, "..": "", "/": "", "../..": ""} {
		e := good()
		e.Attachments = file(name)
		if faults := Faults(e.Validate()); len(faults) != 1 || faults[0].Hint != want {
			t.Errorf("%q is answered by %+v, want the hint %s", name, faults, want)
		}
	}
	e := good()
	e.Attachments = file(".bashrc")
	if err := e.Validate(); err != nil {
		t.Error(err)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, word := range []string{"scheduled", "claimed", "sent", "error", "cancelled"} {
		s, err := ParseStatus(word)
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range s.States() {
			seen++
			if StatusOf(state) != s {
				t.Errorf("%s: %s", s, state)
			}
		}
	}
	if seen != 8 {
		t.Errorf("%d states have a status", seen)
	}
	if _, err := ParseStatus("done"); posthaste.CodeOf(err) != posthaste.CodeInvalid {
		t.Error(err)
	}
}

func TestNewestReceipt(t *testing.T) {
	t.Parallel()
	if NewestReceipt(nil) != nil {
		t.Error("a receipt of nothing")
	}
	r := NewestReceipt([]posthaste.Attempt{
		{Receipt: []byte(`{"recipients":{"a":{"status":"deferred"}}}`)},
		{Receipt: []byte(`{"recipients":{"a":{"status":"accepted"}}}`)},
		{Receipt: []byte(`{"id":"other"}`)},
		{},
	})
	if r == nil || r.Recipients["a"].Status != Accepted {
		t.Errorf("%+v", r)
	}
}

func file(name string) []Attachment { return []Attachment{{Filename: name, Content: []byte("x")}} }

func header(name, value string) map[string]string { return map[string]string{name: value} }

func addresses(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("r%d@example.com", i)
	}
	return list
}

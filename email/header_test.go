package email

import (
	"bytes"
	"strings"
	"testing"
)

// rawHeader composes the mail and returns one header as it is written, with its folds.
func rawHeader(t *testing.T, e *Email, name string) string {
	t.Helper()
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	raw, err := e.Compose(identity)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
	var found []string
	for line := range strings.SplitSeq(string(head), "\r\n") {
		switch {
		case strings.HasPrefix(line, name+":"):
			found = append(found, strings.TrimPrefix(line, name+":"))
		case found != nil && strings.HasPrefix(line, " "):
			found = append(found, line)
		case found != nil:
			return strings.TrimPrefix(strings.Join(found, "\r\n"), " ")
		}
	}
	return strings.TrimPrefix(strings.Join(found, "\r\n"), " ")
}

// A header with a grammar is written in the form of the grammar.
func TestStructuredHeaders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, value, want string }{
		{"List-Unsubscribe", "<https://a.example/u?id=7>,  <mailto:u@a.example?subject=u%20x>", "<https://a.example/u?id=7>, <mailto:u@a.example?subject=u%20x>"},
		{"List-Unsubscribe", " <https://a.example/a,b(c)>  (click  me) ", "<https://a.example/a,b(c)> (click me)"},
		{"list-help", "<mailto:h@a.example>", "<mailto:h@a.example>"},
		{"List-Post", "no", "NO"},
		{"List-Post", "<mailto:list@a.example>", "<mailto:list@a.example>"},
		{"Archived-At", "  <https://a.example/1>", "<https://a.example/1>"},
		{"List-Unsubscribe-Post", " List-Unsubscribe=One-Click ", "List-Unsubscribe=One-Click"},
		{"List-Id", "Über  uns <news.a.example>", "=?utf-8?q?=C3=9Cber_uns?= <news.a.example>"},
		{"List-ID", "<news.a.example>", "<news.a.example>"},
		{"List-Id", `"News, weekly" <news.a.example>`, `"News, weekly" <news.a.example>`},
		{"References", "<1@a.example>   <2@a.example><3@a.example>", "<1@a.example> <2@a.example> <3@a.example>"},
		{"In-Reply-To", " <1@a.example> ", "<1@a.example>"},
		{"In-Reply-To", "<no-at-sign>", "<no-at-sign>"},
		{"Auto-Submitted", "auto-generated;  owner-email=x", "auto-generated; owner-email=x"},
		{"Precedence", " bulk", "bulk"},
		{"X-Priority", "1  (Highest)", "1 (Highest)"},
		{"Feedback-ID", "a:b:c:shop ", "a:b:c:shop"},
		{"Disposition-Notification-To", "Zoë (EU)  <zoe@münchen.de>,ada@example.com", "=?utf-8?q?Zo=C3=AB_=28EU=29?= <zoe@xn--mnchen-3ya.de>, ada@example.com"},
		{"Errors-To", "  ada@example.com", "ada@example.com"},
		{"Keywords", `orders,  größe M, "a, b"`, `orders, =?utf-8?q?gr=C3=B6=C3=9Fe_M?=, "a, b"`},
		// Other headers are read back exactly as given.
		{"X-Note", "two  spaces", "=?utf-8?q?two__spaces?="},
		{"X-Note", "plain", "plain"},
		{"Organization", "Müller  & Co", "=?utf-8?q?M=C3=BCller__=26_Co?="},
	} {
		e := good()
		e.Headers = header(c.name, c.value)
		if got := strings.ReplaceAll(rawHeader(t, e, c.name), "\r\n", ""); got != c.want {
			t.Errorf("%s: %q is written as %q, want %q", c.name, c.value, got, c.want)
		}
	}
}

// A value that does not fit the grammar is rejected with the header's name.
func TestStructuredHeadersRefuse(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]string{
		"List-Unsubscribe": {"https://a.example/u", "<https://a.example/ü>", "<https://a.example/a b>", "<no-scheme>", "<https://a.example/u> or call", "<https://a.example/u>,",
			"<https://a.example/u", "<https://a.example/?q==?utf-8?q?a?=>", "<https://a.example/" + strings.Repeat("u", 965) + ">", "<https://a.example/u> <https://b.example/u>"},
		"List-Id":                     {"news.a.example", "News", "News <news a.example>", "<näws.example>", "a <b> <news.a.example>", "<news.a.example> x"},
		"References":                  {"1@a.example", "<1@a.example> 2@a.example", "<>", "<a<b>", "<ä@a.example>", "<a@b>,<c@d>", "<a@b> (x)"},
		"In-Reply-To":                 {"order 7", "<a@b", "<a b@c>"},
		"Disposition-Notification-To": {",", "ada", "ada@example.com,", "用户@example.com", "a@b.example c@d.example"},
		"Keywords":                    {",", "a,,b", "a <b>"},
		"Auto-Submitted":              {"größe", "=?utf-8?q?a?="},
		"precedence":                  {"bülk"},
	} {
		for _, value := range values {
			e := good()
			e.Headers = header(name, value)
			faults := Faults(e.Validate())
			if len(faults) != 1 || faults[0].Field != "headers."+name || !strings.HasPrefix(faults[0].Message, "headers."+name+" ") {
				t.Errorf("%s: %q is answered by %v", name, value, faults)
			}
		}
	}
}

// A header whose grammar allows no empty value is omitted if it is empty. Other headers may be
// empty. An invalid name is rejected even if the value is empty.
func TestEmptyHeadersAreLeftOut(t *testing.T) {
	t.Parallel()
	e := good()
	e.Headers = map[string]string{"X-Note": ""}
	for name := range grammars {
		e.Headers[name] = strings.Repeat(" ", len(e.Headers)%3)
	}
	raw := string(checkComposed(t, e))
	for name := range e.Headers {
		if there := strings.Contains(raw, "\r\n"+name+":"); there != (name == "X-Note") {
			t.Errorf("%s is there: %t", name, there)
		}
	}
	e.Headers = map[string]string{"References": "", "references": "", "Keywords": "\t"}
	if faults := Faults(e.Validate()); len(faults) != 2 || faults[0].Field != "headers.Keywords" || faults[1].Field != "headers.references" {
		t.Errorf("a name that is there twice and a tab are answered by %v", faults)
	}
}

// The first word of a value stays on the line of the header's name.
func TestFolding(t *testing.T) {
	t.Parallel()
	long := "Übermäßig langer Betreff der nicht in eine Zeile passt und noch etwas länger"
	e := good()
	e.From = long + " <ada@" + strings.Repeat("long.", 20) + "example.com>"
	e.To = []string{strings.Repeat("a", 60) + "@example.com", long + " <b@example.com>", strings.Repeat("b", 60) + "@example.com"}
	e.Cc = []string{`"` + strings.Repeat("word ", 40) + `" <c@example.com>`}
	e.Subject = long
	e.Headers = map[string]string{"X-Long": strings.Repeat("x", 500) + " y", "X-Unicode": strings.Repeat("長", 300), "List-Unsubscribe": "<https://a.example/" + strings.Repeat("u", 300) + ">"}
	raw := checkComposed(t, e)
	head, _, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
	for line := range strings.SplitSeq(string(head), "\r\n") {
		if strings.HasSuffix(line, ":") || strings.TrimSpace(line) == "" || len(line) > maxFolded && strings.Contains(line, "=?") {
			t.Errorf("line %q", line)
		}
	}
	for _, subject := range []string{strings.Repeat("s", 998), strings.Repeat("ü", 499), strings.Repeat("🚀", 200), strings.Repeat("word ", 190), " ", "  a"} {
		e := good()
		e.Subject = subject
		if got := rawHeader(t, e, "Subject"); got == "" || strings.HasPrefix(got, "\r\n") {
			t.Errorf("a subject is written as %q", got)
		}
		checkComposed(t, e)
	}
}

// A file name is written once, in a form that all readers understand.
func TestAttachmentNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"report.pdf":          `filename="report.pdf"`,
		"it's.txt":            `filename="it's.txt"`,
		"a  b; c=d, 100%.txt": `filename="a  b; c=d, 100%.txt"`,
		"Größe.pdf":           "filename*=utf-8''Gr%C3%B6%C3%9Fe.pdf",
		`say "hi".txt`:        "filename*=utf-8''say%20%22hi%22.txt",
		"=?utf-8?q?a?=.txt":   "filename*=utf-8''%3D%3Futf-8%3Fq%3Fa%3F%3D.txt",
	} {
		e := good()
		e.Attachments = []Attachment{{Filename: name, Content: []byte("x")}}
		raw := checkComposed(t, e)
		if !bytes.Contains(raw, []byte("\r\nContent-Disposition: attachment;\r\n "+want+"\r\n")) || bytes.Count(raw, []byte("filename")) != 1 {
			t.Errorf("file name %q is written in\n%s", name, raw)
		}
	}
}

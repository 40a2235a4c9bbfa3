package email

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var created = time.Date(2026, 10, 1, 12, 0, 0, 123456000, time.UTC)

var identity = Identity{ID: 42, CreatedAt: created}

// leaf is a decoded part of a mail.
type leaf struct {
	mediaType, disposition, filename string
	content                          []byte
}

// leaves decodes a composed mail with the standard library.
func leaves(t testing.TB, raw []byte) (mail.Header, []leaf) {
	t.Helper()
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	var list []leaf
	var walk func(h func(string) string, body io.Reader)
	walk = func(h func(string) string, body io.Reader) {
		media, params, err := mime.ParseMediaType(h("Content-Type"))
		if err != nil {
			t.Fatalf("content type %q: %v", h("Content-Type"), err)
		}
		if strings.HasPrefix(media, "multipart/") {
			r := multipart.NewReader(body, params["boundary"])
			for {
				p, err := r.NextRawPart()
				if err == io.EOF {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				walk(p.Header.Get, p)
			}
		}
		switch h("Content-Transfer-Encoding") {
		case "quoted-printable":
			body = quotedprintable.NewReader(body)
		case "base64":
			body = base64.NewDecoder(base64.StdEncoding, body)
		default:
			t.Fatalf("encoding %q", h("Content-Transfer-Encoding"))
		}
		content, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		l := leaf{mediaType: media, content: content}
		if d := h("Content-Disposition"); d != "" {
			var p map[string]string
			if l.disposition, p, err = mime.ParseMediaType(d); err != nil {
				t.Fatalf("disposition %q: %v", d, err)
			}
			l.filename = p["filename"]
		}
		list = append(list, l)
	}
	walk(m.Header.Get, m.Body)
	return m.Header, list
}

// canonical returns text with MIME's line endings.
func canonical(s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	s = strings.ReplaceAll(s, "\r", "\n")
	return strings.ReplaceAll(s, "\n", "\r\n")
}

// checkComposed composes a valid mail and compares every decoded part with the input.
func checkComposed(t *testing.T, e *Email) (raw []byte) {
	t.Helper()
	raw, err := e.Compose(identity)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := e.Compose(identity); err != nil || !bytes.Equal(raw, again) {
		t.Fatalf("composed again, the mail differs (%v):\n%s\n%s", err, raw, again)
	}
	for line := range bytes.SplitSeq(bytes.TrimSuffix(raw, []byte("\r\n")), []byte("\r\n")) {
		if len(line) > 998 || bytes.ContainsAny(line, "\r\n\x00") {
			t.Fatalf("line of %d bytes: %q", len(line), line)
		}
		if !e.NeedsSMTPUTF8() && !isASCII(string(line)) {
			t.Fatalf("line beyond ASCII: %q", line)
		}
	}
	header, parts := leaves(t, raw)
	checkHeader(t, e, header)
	var want []leaf
	if e.Text != "" {
		want = append(want, leaf{mediaType: "text/plain", content: []byte(canonical(e.Text))})
	}
	if e.HTML != "" {
		want = append(want, leaf{mediaType: "text/html", content: []byte(canonical(e.HTML))})
	}
	for _, a := range e.Attachments {
		want = append(want, leaf{disposition: "attachment", filename: a.Filename, content: a.Content})
	}
	if len(parts) != len(want) {
		t.Fatalf("%d parts, want %d:\n%s", len(parts), len(want), raw)
	}
	for i, w := range want {
		p := parts[i]
		if !bytes.Equal(p.content, w.content) || p.disposition != w.disposition || p.filename != w.filename ||
			w.mediaType != "" && p.mediaType != w.mediaType {
			t.Fatalf("part %d is %+q, want %+q\n%s", i, p, w, raw)
		}
	}
	return raw
}

func checkHeader(t *testing.T, e *Email, h mail.Header) {
	t.Helper()
	decode := func(name string) string {
		s, err := new(mime.WordDecoder).DecodeHeader(h.Get(name))
		if err != nil {
			t.Fatalf("%s: %q: %v", name, h.Get(name), err)
		}
		return s
	}
	if got := decode("Subject"); got != e.Subject {
		t.Fatalf("subject %q, want %q", got, e.Subject)
	}
	for name, want := range e.Headers {
		if grammars[textproto.CanonicalMIMEHeaderKey(name)] != nil {
			want = strings.Join(strings.Fields(decode(name)), " ") // TestStructuredHeaders compares the exact text
		}
		if got := decode(name); got != want {
			t.Fatalf("header %s: %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string][]string{"From": {e.From}, "To": e.To, "Cc": e.Cc, "Reply-To": nonEmpty(e.ReplyTo)} {
		if len(want) == 0 {
			continue
		}
		if strings.Contains(h.Get(name), "@[IPv6:") {
			continue // the standard library cannot read these
		}
		got, err := h.AddressList(name)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: %q: %v (%d, want %d)", name, h.Get(name), err, len(got), len(want))
		}
		for i, s := range want {
			a, err := ParseAddress(s)
			if err != nil {
				t.Fatal(err)
			}
			if got[i].Name != a.Name || got[i].Address != a.Local+"@"+a.wireDomain() {
				t.Fatalf("%s %d: %+v, want %+v", name, i, got[i], a)
			}
		}
	}
	if h.Get("Message-Id") != e.MessageIDHeader(identity) {
		t.Fatalf("message id %q", h.Get("Message-Id"))
	}
	if date, err := h.Date(); err != nil || !date.Equal(created.Truncate(time.Second)) {
		t.Fatalf("date %v (%v)", date, err)
	}
	if h.Get("Bcc") != "" || h.Get("Mime-Version") != "1.0" {
		t.Fatalf("header %v", h)
	}
}

// unicodeMail has Unicode in every field that allows it.
func unicodeMail() *Email {
	return &Email{
		From: "Zoë Ångström 🚀 <zoë@münchen.de>", ReplyTo: "回复 <回复@例え.jp>",
		Cc: []string{`"Lovelace, Ädä" <ada@example.com>`, "Ελλη <ελλη@παράδειγμα.gr>"}, Bcc: []string{"тайна@пример.example"},
		To:      []string{"Łukasz <lukasz@żółw.pl>", "عربي <مثال@example.com>", strings.Repeat("ж", 127) + " <long@example.com>"},
		Subject: strings.Repeat("Grüße aus 東京 👩‍👩‍👧‍👦 ", 12) + "\u202e.",
		Text:    "Zeile eins\nZeile zwei – ünïcödé 🎉\n.\n..\n\n trailing \t\n" + strings.Repeat("長い行", 400) + "\nFrom me",
		HTML:    "<p>Grüße = 100 %</p>\r\n<p>🎉</p>\r\n",
	}
}

func TestEM1_UnicodeSurvivesComposing(t *testing.T) {
	t.Parallel()
	e := unicodeMail()
	e.Headers = map[string]string{"X-Note": "  ünïcödé  with   spaces ", "X-Plain": "  two  spaces ", "X-Word": "=?utf-8?q?not_a_word?=", "X-Empty": ""}
	for i := range 60 {
		e.To = append(e.To, fmt.Sprintf("Empfänger %d <empfänger-%d@example.com>", i, i))
	}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	e.Attachments = []Attachment{
		{Filename: "Übersicht 2026 – “Q3”.pdf", Content: bytes.Repeat(every, 300)},
		{Filename: `a "quoted" name; x=y.txt`, ContentType: "text/plain; charset=utf-8", Content: []byte("ünï\n")},
		{Filename: "空.bin", ContentType: "application/x-π", Content: []byte{}},
		{Filename: "100%.csv", Content: []byte(strings.Repeat("a", 60))},
	}
	e.Attachments[2].ContentType = "application/x-pi"
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	raw := checkComposed(t, e)
	if bytes.Contains(raw, []byte("тайна")) || bytes.Contains(bytes.ToLower(raw), []byte("bcc")) {
		t.Error("bcc shows")
	}
}

func TestComposeShapes(t *testing.T) {
	t.Parallel()
	file := []Attachment{{Filename: "a.txt", Content: []byte("hello")}}
	for name, e := range map[string]*Email{
		"text":              {Text: "no line break"},
		"text, line break":  {Text: "line\n"},
		"text, spaces":      {Text: "ends in space "},
		"text, dot":         {Text: "."},
		"text, CR":          {Text: "a\rb\r\nc\n\nd\r"},
		"text, CR and LF":   {Text: "a\rü\nb\rü\r\nc", HTML: "\r\r\n\n\rü\n"},
		"html":              {HTML: "<p>only</p>"},
		"both":              {Text: "t", HTML: "<p>h</p>"},
		"text and file":     {Text: "t", Attachments: file},
		"all":               {Text: "t\n\n", HTML: "<p>h</p>", Attachments: append(file, file...)},
		"looks like parts":  {Text: "--aaaa\r\nContent-Type: multipart/mixed;\r\n boundary=" + strings.Repeat("a", 60) + "\r\n\r\nx", HTML: strings.Repeat("a", 60), Attachments: []Attachment{{Filename: strings.Repeat("b", 60), Content: []byte(strings.Repeat("i\xa6\x9a", 60))}}},
		"long word":         {Text: "t", Subject: strings.Repeat("w", 998), Headers: header("List-Unsubscribe", "<https://example.com/"+strings.Repeat("u", 900)+">")},
		"folded boundary":   {Text: "t", HTML: "h", Headers: header("X-Long", strings.Repeat("x", 60)+" Content-Type: multipart/mixed; boundary="+strings.Repeat("c", 60))},
		"many plain words":  {Text: "t", Subject: strings.Repeat("word ", 190) + "end"},
		"address forms":     {Text: "t", To: []string{`"a b"@example.com`, "a@[192.0.2.1]", `"quoted, name" <q@example.com>`}, ReplyTo: "r@example.com"},
		"encoded word name": {Text: "t", To: []string{`"=?utf-8?q?a?=" <a@example.com>`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e.From = "ada@example.com"
			if e.To == nil {
				e.To = []string{"bob@example.com"}
			}
			if err := e.Validate(); err != nil {
				t.Fatal(err)
			}
			checkComposed(t, e)
		})
	}
}

func TestComposeOnlyBcc(t *testing.T) {
	t.Parallel()
	e := &Email{From: "ada@example.com", Bcc: []string{"secret@example.com"}, Text: "t"}
	raw := checkComposed(t, e)
	if bytes.Contains(raw, []byte("secret")) || !bytes.Contains(raw, []byte("To: undisclosed-recipients:;\r\n")) {
		t.Errorf("%s", raw)
	}
}

func TestMessageIDDiffers(t *testing.T) {
	t.Parallel()
	e := good()
	of := func(id posthaste.MessageID, created time.Time) string {
		return e.MessageIDHeader(Identity{ID: id, CreatedAt: created})
	}
	id := of(7, created)
	if !strings.HasPrefix(id, "<posthaste.7.") || !strings.HasSuffix(id, "@example.com>") {
		t.Error(id)
	}
	if id != of(7, created.In(time.FixedZone("x", 3600))) {
		t.Error("the zone changes it")
	}
	if id == of(7, created.Add(time.Microsecond)) || id == of(8, created) {
		t.Error("two mails share it")
	}
}

package smtp

import (
	"encoding/base64"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste/email"
)

// generator generates random mails.
type generator struct{ *rand.Rand }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// letter generates a mail with its meaning. One in eight is invalid.
func (g *generator) letter() letter {
	l := letter{want: understood{Texts: map[string]string{}, Addresses: map[string][]named{}}}
	l.mail.From = g.addresses(&l, "From", 1, true)[0]
	l.mail.To = g.addresses(&l, "To", 1+g.IntN(4), true)
	if g.IntN(3) == 0 {
		l.mail.Cc = g.addresses(&l, "Cc", 1+g.IntN(3), true)
	}
	if g.IntN(3) == 0 {
		l.mail.ReplyTo = g.addresses(&l, "Reply-To", 1, true)[0]
	}
	if l.mail.Subject = g.text(900); l.mail.Subject != "" {
		l.want.Texts["Subject"] = l.mail.Subject
	}
	l.mail.Headers = map[string]string{}
	for range g.IntN(6) {
		g.header(&l)
	}
	g.body(&l)
	if g.IntN(8) == 0 {
		g.spoil(&l)
	}
	return l
}

// text generates a line for an unstructured header.
func (g *generator) text(limit int) string {
	var b strings.Builder
	for range g.IntN(12) {
		piece := pick(g, "word", "a", " ", "  ", "größe", "東京", "👩‍👩‍👧‍👦", "مثال", "\u202e", "\u00a0", "e\u0301", "=?utf-8?q?a?=", "=?", "?=", "=", "_", `"`, `\`, "(x)", ")", "<a@b>",
			",", ";", ":", ".", "@", "it's", "100%", strings.Repeat("long", 1+g.IntN(60)), strings.Repeat("ü", 1+g.IntN(60)), strings.Repeat("word ", 1+g.IntN(20)))
		if b.Len()+len(piece) > limit {
			break
		}
		b.WriteString(piece)
	}
	return b.String()
}

// addresses generates addresses in the forms in which people write them.
func (g *generator) addresses(l *letter, header string, n int, international bool) (list []string) {
	for range n {
		domain := pick(g, [2]string{"example.com", "example.com"}, [2]string{"mail.example.org", "mail.example.org"}, [2]string{"münchen.example", "xn--mnchen-3ya.example"}, [2]string{"[192.0.2.1]", "[192.0.2.1]"})
		locals := [][2]string{{"ada", "ada"}, {"a.b+c", "a.b+c"}, {`"a b"`, "a b"}, {`"a\"b"`, `a"b`}, {"o'neil", "o'neil"}, {"用户", "用户"}}
		if !international {
			locals = locals[:len(locals)-1]
		}
		local := pick(g, locals...)
		if local[1] == "用户" && domain[1] != "[192.0.2.1]" {
			domain[1] = domain[0] // sent as written
		}
		name := "a" + g.text(200)
		want := named{Name: strings.Join(strings.Fields(name), " "), Address: local[1] + "@" + domain[1]}
		spec := local[0] + "@" + domain[0]
		switch g.IntN(5) {
		case 0: // unquoted, if it needs no quotes
			name = pick(g, "Ada", "My Shop (EU)", "Zoë  Ångström", "Dr. Who", "A (b (c)) d", "(x)", "東京 🚀")
			want.Name = strings.Join(strings.Fields(name), " ")
			spec = name + " <" + spec + ">"
		case 1, 3: // quoted, in which other programs leave encoded words
			name = strings.ReplaceAll(name, "=?utf-8?q?a?=", "=?")
			want.Name = strings.Join(strings.Fields(name), " ")
			if encoded := pick(g, "", "=?windows-1252?Q?J=FCrgen?=", "=?UTF-8?B?SsO8?= =?utf-8*de?q?rgen?="); encoded != "" {
				name, want.Name = name+" "+encoded, want.Name+" Jürgen"
			}
			spec = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `" <` + spec + ">"
		case 2:
			name = "=?UTF-8?B?" + base64.StdEncoding.EncodeToString([]byte(name)) + "?="
			spec = name + " <" + spec + ">"
		default:
			want.Name = ""
		}
		list = append(list, spec)
		l.want.Addresses[header] = append(l.want.Addresses[header], want)
	}
	return list
}

// header adds a header, structured or not.
func (g *generator) header(l *letter) {
	blanks := func() string { return strings.Repeat(" ", g.IntN(3)) }
	name, value, want := pick(g, "X-Note", "Comments", "Organization", "X-Mailer", "User-Agent", "X-Campaign-Id", "Thread-Topic", "List-Software"), g.text(900), ""
	want = value
	switch g.IntN(8) {
	case 0:
		name = pick(g, "List-Unsubscribe", "List-Help", "List-Subscribe", "List-Owner", "List-Post", "List-Archive", "Archived-At")
		var in, out []string
		for range 1 + g.IntN(3) {
			url := pick(g, "<https://example.com/u?id=7&x=a,b;c>", "<mailto:leave@example.com?subject=un%20sub>", "<https://example.com/"+strings.Repeat("u", g.IntN(200))+">", "<https://example.com/(a)>")
			comment := pick(g, "", "", "(click here)")
			in = append(in, blanks()+url+blanks()+strings.ReplaceAll(comment, " ", "  ")+blanks())
			out = append(out, strings.TrimSpace(url+" "+comment))
		}
		value, want = strings.Join(in, ","), strings.Join(out, ", ")
	case 1:
		name = pick(g, "References", "In-Reply-To", "Supersedes")
		value, want = "", ""
		for range 1 + g.IntN(6) {
			id := pick(g, "<1@example.com>", "<a.b-c$d@mail.example.com>", "<posthaste.7.0123456789abcdef@example.com>", "<"+strings.Repeat("i", 1+g.IntN(100))+"@[192.0.2.1]>")
			value += blanks() + id + " "
			want = strings.TrimSpace(want + " " + id)
		}
	case 2:
		name = "List-Id"
		phrase := pick(g, "", "News", "Our weekly news", "Über uns", "東京 ニュース")
		value = strings.ReplaceAll(phrase, " ", "  ") + " " + blanks() + "<news.example.com>"
		want = strings.TrimSpace(phrase + " <news.example.com>")
	case 3:
		name = pick(g, "Auto-Submitted", "Precedence", "Importance", "X-Priority", "Sensitivity", "List-Unsubscribe-Post", "Feedback-Id", "X-Auto-Response-Suppress")
		want = pick(g, "auto-generated", "bulk", "1 (Highest)", "List-Unsubscribe=One-Click", "a:b:c:shop", "DR, OOF, AutoReply", "auto-replied; owner-email=\"a@example.com\"")
		value = blanks() + strings.ReplaceAll(want, " ", "   ") + blanks()
	case 4:
		name = "Keywords"
		words := []string{pick(g, "orders", "a b"), pick(g, "größe M", "東京"), "x"}
		value, want = strings.Join(words, ","+blanks())+blanks(), strings.Join(words, ", ")
	case 5:
		name = pick(g, "Disposition-Notification-To", "Return-Receipt-To", "Errors-To")
		if _, there := l.mail.Headers[name]; !there {
			l.mail.Headers[name] = strings.Join(g.addresses(l, name, 1+g.IntN(3), false), ","+blanks())
		}
		return
	case 6: // omitted
		name = pick(g, "References", "In-Reply-To", "List-Unsubscribe", "List-Id", "Keywords", "Reply-By", "Mail-Reply-To")
		l.mail.Headers[name] = blanks()
		delete(l.want.Texts, name)
		return
	}
	if len(value) > email.MaxHeaderValueBytes {
		return
	}
	l.mail.Headers[name], l.want.Texts[name] = value, want
}

// body adds texts and attachments.
func (g *generator) body(l *letter) {
	lines := func() string {
		var b strings.Builder
		for range g.IntN(6) {
			b.WriteString(g.text(900) + pick(g, "\n", "\r\n", "\r", " \n", ".\n", "\nFrom x\n", "\n.\n"))
		}
		return b.String() + "end"
	}
	crlf := strings.NewReplacer("\r\n", "\r\n", "\r", "\r\n", "\n", "\r\n")
	choice := g.IntN(3)
	if choice != 1 {
		l.mail.Text = lines()
		l.want.Parts = append(l.want.Parts, readPart{Type: "text/plain", Content: []byte(crlf.Replace(l.mail.Text))})
	}
	if choice != 0 {
		l.mail.HTML = lines()
		l.want.Parts = append(l.want.Parts, readPart{Type: "text/html", Content: []byte(crlf.Replace(l.mail.HTML))})
	}
	for range max(0, g.IntN(5)-2) {
		name := strings.TrimSpace(strings.NewReplacer("/", "", `\`, "").Replace(g.text(240)))
		if strings.Trim(name, ".") == "" {
			name = "it's.txt"
		}
		content := make([]byte, g.IntN(300))
		for i := range content {
			content[i] = byte(g.Uint32())
		}
		kind := pick(g, "application/x-test", "Text/Plain; charset=utf-8", `image/png; name="größe.png"`)
		media, _, _ := strings.Cut(strings.ToLower(kind), ";")
		l.mail.Attachments = append(l.mail.Attachments, email.Attachment{Filename: name, ContentType: kind, Content: content})
		l.want.Parts = append(l.want.Parts, readPart{Type: media, Attached: true, Filename: name, Content: content})
	}
}

// spoil makes a mail invalid.
func (g *generator) spoil(l *letter) {
	m := &l.mail
	injected := pick(g, "\r\nBcc: eve@example.com", "\n", "\r", "\x00", "\t", "\u0085", "\u2028", "\x7f")
	header := func(name, value string) {
		m.Headers[name], l.field = value, "headers."+name
	}
	switch g.IntN(13) {
	case 0:
		m.Subject, l.field = g.text(100)+injected+g.text(100), "subject"
	case 1:
		header("X-Injected", g.text(100)+injected)
	case 2:
		m.From, l.field = pick(g, "ada", "", "Ada <ada@example.com"+injected+">", "a@b, c@d", "Lovelace, Ada <ada@example.com>", `"Shop"(EU) <a@example.com>`), "from"
	case 3:
		m.To, l.field = append([]string{pick(g, "missing", "x@", "a b@example.com", `"Ada`+injected+`" <ada@example.com>`)}, m.To...), "to[0]"
	case 4:
		header(pick(g, "From", "bcc", "DATE", "Content-Type", "Resent-To", "Received", "DKIM-Signature", "Sender"), "x")
	case 5:
		header(pick(g, "List-Unsubscribe", "List-Archive"), pick(g, "https://example.com/", "<https://example.com/ü>", "<https://example.com/a b>", "<x>", "<https://example.com/>,"))
	case 6:
		header(pick(g, "References", "In-Reply-To"), pick(g, "1@example.com", "<>", "<größe@example.com>", "order 7", "<a@b>,<c@d>"))
	case 7:
		header("Errors-To", pick(g, "ada", "用户@example.com", "a@example.com b@example.com", ","))
	case 8:
		header(pick(g, "Precedence", "Auto-Submitted", "X-Priority"), pick(g, "größe", "=?utf-8?q?bulk?="))
	case 9:
		m.Attachments = []email.Attachment{{Filename: pick(g, "../../etc/passwd", `C:\boot.ini`, "a/b", "..", "", " a", "a"+injected+"b"), Content: []byte("x")}}
		l.field = "attachments[0].filename"
	case 10:
		m.Attachments = []email.Attachment{{Filename: "a", ContentType: pick(g, "pdf", "a/b"+injected, "message/rfc822", "multipart/mixed"), Content: []byte("x")}}
		l.field = "attachments[0].content_type"
	case 11:
		header(pick(g, "X Note", "X:Note", "Größe"), "x")
	default:
		m.SendAt, l.field = time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC), "send_at" // but the message is not delayed
	}
}

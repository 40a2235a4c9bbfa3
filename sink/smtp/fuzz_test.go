package smtp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/textproto"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/wneessen/go-mail/smtp"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
)

// A valid URL gives a server that can be dialed, sends no password unencrypted, and is parsed
// the same from its parts. Errors do not contain the password.
func FuzzURL(f *testing.F) {
	for _, seed := range [][2]string{
		{"smtp://ada:", "@mail.example.com"}, {"smtps://ada:x", "y@mail.example.com:465"}, {"smtp://ada:", "@127.0.0.1:1025?tls=none"},
		{"smtp://ada:", "@mail.example.com?tls=none"}, {"smtp+starttls://a%40b:", "@[2001:db8::1]:26/?connections=3&idle_timeout=1s"},
		{"smtp://", "@h"}, {"smtp://:", "@h"}, {"smtp://ada:%", "@h"}, {"smtp://ada:", "@h:x"}, {"smtp://ada:", "@h:0#f"}, {"http://ada:", "@h"},
		{"", ""}, {"smtp:", ""}, {"smtp://h?", "=1"}, {"smtp://h?hello=", "&tls=opportunistic"}, {"smtp://h?a=", "%zz;b"}, {"smtps://ada:", "@h?tls=none"},
		{"smtp://ada:", "/@h"}, {"smtp://ada:", "?x@h"}, {"smtp://ada:", "\x7f@h"},
	} {
		f.Add(seed[0], seed[1])
	}
	const secret = "s3cret-Xy7"
	f.Fuzz(func(t *testing.T, before, after string) {
		got, err := parse(Config{URL: before + secret + after})
		if err != nil {
			var e *posthaste.Error
			if !errors.As(err, &e) || e.Code != posthaste.CodeInvalid && e.Code != posthaste.CodeRefused || e.Field != urlField || e.Message == "" {
				t.Fatalf("not a clear error: %v", err)
			}
			// The text after a "?" may be a parameter's name.
			if strings.Contains(e.Message+e.Hint, secret) && !strings.Contains(before, "?") {
				t.Fatalf("the error contains the password: %v", err)
			}
			return
		}
		host, port, err := net.SplitHostPort(got.address)
		if n, _ := strconv.Atoi(port); err != nil || host != got.host || host == "" || n < 1 || n > 65535 {
			t.Fatalf("%q cannot be dialed", got.address)
		}
		if (got.user == "") != (got.password == "") || got.user != "" && got.security == unencrypted && !isLoopbackName(got.host) {
			t.Fatalf("parsed as %+v", got)
		}
		if got.Connections < 1 || got.IdleTimeout <= 0 || got.DialTimeout <= 0 || got.CommandTimeout <= 0 || got.DataTimeout <= 0 || got.TLS.ServerName != got.host {
			t.Fatalf("parsed as %+v", got)
		}
		again := url.URL{Scheme: "smtp", Host: got.address, RawQuery: url.Values{"tls": {[]string{"required", "required", "opportunistic", "none"}[got.security]}}.Encode()}
		if got.security == implicitTLS {
			again.Scheme = "smtps"
		}
		if got.user != "" {
			again.User = url.UserPassword(got.user, got.password)
		}
		same, err := parse(Config{URL: again.String()})
		if err != nil || same.address != got.address || same.user != got.user || same.password != got.password || same.security != got.security {
			t.Fatalf("from its parts %+v is parsed as %+v, %v", got, same, err)
		}
	})
}

// Each response of a server is a reply with a code and one line of text that can be stored and
// shown, or is rejected.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		"250 2.1.5 ok\r\n", "250-first\r\n250 second\r\n", "550-5.1.1 no such\r\n550 5.1.1 user\r\n", "421\r\n", "250-\r\n250\r\n", "250-a\r\n251 b\r\n", "199 x\r\n", "600 x\r\n", "2500 x\r\n",
		"+50 x\r\n", "-50 x\r\n", "25\r\n", "\r\n", "250 no end", "530 5.7.0 Authentication required\r\n", "554 \xff\x00\x1b[31m\u2028x\r\n", "451 " + strings.Repeat("ü ", 400) + "\r\n", "250 5.1.1x\r\n", "250 9.1.1 x\r\n", "250 a\n250-b\r\n",
	} {
		f.Add([]byte(seed))
	}
	enhanced := regexp.MustCompile(`\A([245]\.\d{1,3}\.\d{1,3})?\z`)
	shown := func(s string) bool {
		return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) && strings.Join(strings.Fields(s), " ") == s && len(s) <= maxReplyText+len("…")
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &conn{client: &smtp.Client{Text: textproto.NewConn(struct {
			io.Reader
			io.Writer
			io.Closer
		}{bytes.NewReader(data), io.Discard, io.NopCloser(nil)})}}
		for answers := 0; ; answers++ {
			r, err := c.answer()
			if err != nil {
				if answers > 1+len(data)/len("250\n") {
					t.Fatalf("%d replies", answers)
				}
				if !utf8.ValidString(err.Error()) || strings.ContainsFunc(err.Error(), unicode.IsControl) {
					t.Fatalf("reading ended with %q", err)
				}
				return
			}
			if r.code < 200 || r.code > 599 || !enhanced.MatchString(r.enhanced) || !shown(r.text) {
				t.Fatalf("%+v", r)
			}
			if said := r.String(); !utf8.ValidString(said) || !strings.HasPrefix(said, strconv.Itoa(r.code)+" ") {
				t.Fatalf("%+v is shown as %q", r, said)
			}
			want := email.Deferred
			switch {
			case r.code < 300:
				want = email.Accepted
			case r.code >= 500 && !r.aboutUs():
				want = email.Refused
			}
			if r.status() != want {
				t.Fatalf("%+v means %s", r, r.status())
			}
		}
	})
}

package smtp

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/catcher"
)

func TestEncryption(t *testing.T) {
	t.Parallel()
	plain := startCatcher(t, catcher.Config{})
	starttls := startCatcher(t, catcher.Config{TLS: true})
	implicit := startCatcher(t, catcher.Config{ImplicitTLS: true})
	for _, c := range []struct {
		name, scheme, parameters string
		server                   *catcher.Catcher
		encrypted                bool
		fails                    string
	}{
		{"required", "smtp", "", starttls, true, ""},
		{"required, not offered", "smtp", "", plain, false, "does not offer STARTTLS"},
		{"starttls scheme", "smtp+starttls", "", starttls, true, ""},
		{"starttls scheme, not offered", "smtp+starttls", "", plain, false, "does not offer STARTTLS"},
		{"opportunistic", "smtp", "tls=opportunistic", starttls, true, ""},
		{"opportunistic, not offered", "smtp", "tls=opportunistic", plain, false, ""},
		{"none", "smtp", "tls=none", starttls, false, ""},
		{"smtps", "smtps", "", implicit, true, ""},
		{"smtps, plain server", "smtps", "", plain, false, "TLS handshake"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSinkOf(t, Config{URL: c.scheme + "://" + c.server.Addr() + "?command_timeout=20s&" + c.parameters, TLS: c.server.ClientTLS()})
			to := strings.ReplaceAll(c.name, ", ", "-")
			to = strings.ReplaceAll(to, " ", "-") + "@example.com"
			r, _ := attemptOnce(t, s, delivery(t, simple(to)))
			if c.fails != "" {
				wantRetry(t, r, c.fails)
				if n := mailed(c.server)[to]; n != 0 {
					t.Errorf("mailed %d times", n)
				}
				return
			}
			wantOK(t, r)
			for _, m := range c.server.Mails() {
				if m.To[0] == to && m.TLS != c.encrypted {
					t.Errorf("encrypted: %v", m.TLS)
				}
			}
		})
	}
}

// TestUntrustedCertificate: a server without a trusted certificate gets no mail, and the mail
// is retried.
func TestUntrustedCertificate(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"required", "opportunistic"} {
		c := startCatcher(t, catcher.Config{TLS: true})
		r, _ := attemptOnce(t, newSinkOf(t, Config{URL: "smtp://" + c.Addr() + "?tls=" + mode}), delivery(t, simple()))
		wantRetry(t, r, "STARTTLS")
		var unknown x509.UnknownAuthorityError
		if !errors.As(r.Err, &unknown) || len(c.Mails()) != 0 {
			t.Errorf("%s: %v, %d mails", mode, r.Err, len(c.Mails()))
		}
	}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	const password = "s3cr%et&Ö"
	escaped := "ada:s3cr%25et%26%C3%96@"
	for _, mechanism := range []string{"PLAIN", "LOGIN"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			c := startCatcher(t, catcher.Config{TLS: true, Username: "ada", Password: password, AuthMechanisms: []string{"X-OTHER", mechanism}})
			s := newSinkOf(t, Config{URL: "smtp://" + escaped + c.Addr(), TLS: c.ClientTLS()})
			r, _ := attemptOnce(t, s, delivery(t, simple()))
			wantOK(t, r)
			if m := c.Mails()[0]; m.User != "ada" || !m.TLS {
				t.Errorf("%+v", m)
			}
		})
	}
	t.Run("loopback without TLS", func(t *testing.T) {
		t.Parallel()
		c := startCatcher(t, catcher.Config{InsecureAuth: true, Username: "ada", Password: password})
		r, _ := attemptOnce(t, newSinkOf(t, Config{URL: "smtp://" + escaped + c.Addr() + "?tls=none"}), delivery(t, simple()))
		wantOK(t, r)
	})
	t.Run("nothing known offered", func(t *testing.T) {
		t.Parallel()
		c := startCatcher(t, catcher.Config{TLS: true, Username: "ada", Password: password, AuthMechanisms: []string{"X-OTHER"}})
		r, _ := attemptOnce(t, newSinkOf(t, Config{URL: "smtp://" + escaped + c.Addr(), TLS: c.ClientTLS()}), delivery(t, simple()))
		wantRetry(t, r, "X-OTHER")
	})
	t.Run("wrong password", func(t *testing.T) {
		t.Parallel()
		c := startCatcher(t, catcher.Config{TLS: true, Username: "ada", Password: "other"})
		s := newSinkOf(t, Config{URL: "smtp://" + escaped + c.Addr(), TLS: c.ClientTLS()})
		r, receipt := attemptOnce(t, s, delivery(t, simple()))
		// A 5xx, but about the session.
		wantRetry(t, r, "535", "Authentication failed")
		if receipt.Recipients["bob@example.com"].Status != email.Deferred {
			t.Errorf("receipt %+v", receipt)
		}
	})
}

// TestPasswordIsNotRepeated: errors do not contain the password, even if the server repeats
// it.
func TestPasswordIsNotRepeated(t *testing.T) {
	t.Parallel()
	const password = "s3cr3t"
	for _, echo := range []string{password, base64.StdEncoding.EncodeToString([]byte("\x00ada\x00" + password)), base64.StdEncoding.EncodeToString([]byte(password))} {
		c := startCatcher(t, catcher.Config{TLS: true, Username: "ada", Password: password})
		c.Inject(catcher.Fault{Stage: catcher.StageAuth, Code: 535, Text: "no: " + echo})
		s := newSinkOf(t, Config{URL: "smtp://ada:" + password + "@" + c.Addr(), TLS: c.ClientTLS()})
		r, _ := attemptOnce(t, s, delivery(t, simple()))
		wantRetry(t, r, "535", "no: …")
		if strings.Contains(r.Err.Error()+string(r.Receipt), echo) {
			t.Errorf("%v\n%s", r.Err, r.Receipt)
		}
	}
}

// farConn looks like a connection to another machine.
type farConn struct{ net.Conn }

func (farConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 25} }

// TestPasswordStaysUnencryptedOnlyOnLoopback: a session that works on loopback sends no
// password to another machine.
func TestPasswordStaysUnencryptedOnlyOnLoopback(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{InsecureAuth: true, Username: "ada", Password: "s3cret"})
	auth := c.Inject(catcher.Fault{Stage: catcher.StageAuth, Times: -1})
	target, err := parse(Config{URL: "smtp://ada:s3cret@" + c.Addr() + "?tls=opportunistic"})
	if err != nil {
		t.Fatal(err)
	}
	for _, far := range []bool{false, true} {
		nc, err := net.Dial("tcp", c.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if far {
			nc = farConn{nc}
		}
		err = (&conn{target: target, wire: &wire{Conn: nc}}).greet()
		if far != (err != nil) || auth.Hits() != 1 {
			t.Errorf("far %v: %v, the password was sent %d times", far, err, auth.Hits())
		}
	}
}

func TestHelloName(t *testing.T) {
	t.Parallel()
	for ip, want := range map[string]string{"127.0.0.1": "[127.0.0.1]", "2001:db8::1": "[IPv6:2001:db8::1]"} {
		c := conn{target: &target{}, wire: &wire{Conn: localConn{ip: net.ParseIP(ip)}}}
		if got := c.helloName(); got != want {
			t.Errorf("%s: %s", ip, got)
		}
	}
}

type localConn struct {
	net.Conn
	ip net.IP
}

func (c localConn) LocalAddr() net.Addr { return &net.TCPAddr{IP: c.ip} }

// TestSMTPUTF8: the extension is used for addresses that need it, and only for them.
func TestSMTPUTF8(t *testing.T) {
	t.Parallel()
	with := startCatcher(t, catcher.Config{})
	without := startCatcher(t, catcher.Config{Without: []string{"SMTPUTF8", "8BITMIME"}})
	idn := simple("Zoë <zoe@münchen.example>")
	idn.Subject = "Grüße"
	for _, c := range []*catcher.Catcher{with, without} {
		r, _ := attemptOnce(t, newSink(t, c.Addr(), ""), delivery(t, idn))
		wantOK(t, r)
		if m := c.Mails()[0]; m.SMTPUTF8 || m.To[0] != "zoe@xn--mnchen-3ya.example" || m.Subject != "Grüße" {
			t.Errorf("%+v", m)
		}
	}
	e := simple("bob@example.com", "用户@example.com")
	r, receipt := attemptOnce(t, newSink(t, without.Addr(), ""), delivery(t, e))
	wantPermanent(t, r, "to[1]", "用户@example.com", "SMTPUTF8", without.Addr())
	if receipt.Recipients["bob@example.com"].Status != email.Refused || len(without.Mails()) != 1 {
		t.Errorf("receipt %+v", receipt)
	}
	// A bcc address is in no header, so the others get their mail.
	e = simple("carl@example.com")
	e.Bcc = []string{"用户@example.com"}
	r, receipt = attemptOnce(t, newSink(t, without.Addr(), ""), delivery(t, e))
	wantPermanent(t, r, "bcc", "用户@example.com", "accepted for 1 of 2")
	if got := statuses(receipt); got != "carl@example.com=accepted/250/1 用户@example.com=refused/0/1" {
		t.Errorf("receipt %s", got)
	}
	r, _ = attemptOnce(t, newSink(t, with.Addr(), ""), delivery(t, e))
	wantOK(t, r)
	mails := with.Mails()[1:]
	if len(mails) != 2 || mails[0].SMTPUTF8 || !mails[1].SMTPUTF8 {
		t.Errorf("%d mails", len(mails))
	}
}

func TestTooLargeForTheServer(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{MaxMessageBytes: 10_000})
	e := simple()
	e.Text = strings.Repeat("x", 11_000)
	r, _ := attemptOnce(t, newSink(t, c.Addr(), ""), delivery(t, e))
	wantPermanent(t, r, "at most 10000 bytes")
	r, _ = attemptOnce(t, newSink(t, c.Addr(), ""), delivery(t, simple()))
	wantOK(t, r)
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	const address = "127.0.0.1:1" // never assigned as a free port
	r, _ := attemptOnce(t, newSink(t, address, ""), delivery(t, simple()))
	wantRetry(t, r, "connecting to "+address)
	var refused *net.OpError
	if !errors.As(r.Err, &refused) {
		t.Errorf("%v", r.Err)
	}
}

// TestStrangeServers: whatever a server sends, the mail is retried or refused, and the error is
// one line of bounded length.
func TestStrangeServers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines     []string
		permanent bool
		words     string
	}{
		"nonsense":          {[]string{"hello there\r\n"}, false, "greeting"},
		"empty line":        {[]string{"\r\n"}, false, "greeting"},
		"silence, then end": {[]string{""}, false, "greeting"},
		"no ESMTP":          {[]string{"220 hi\r\n", "502 what?\r\n", "250 hi\r\n", "250 ok\r\n", "250 ok\r\n", "354 go\r\n"}, false, "after the whole mail"},
		"endless":           {[]string{"220 hi\r\n", strings.Repeat("250-"+strings.Repeat("x", 1000)+"\r\n", 1000)}, false, "too long"},
		"endless line":      {[]string{"220 " + strings.Repeat("x", 1<<20)}, false, "too long"},
		"strange code":      {[]string{"220 hi\r\n", "250 hi\r\n", "299 ok\r\n", "250 ok\r\n", "250 go on\r\n"}, false, "unexpected reply 250 go on"},
		"3xx at MAIL":       {[]string{"220 hi\r\n", "250 hi\r\n", "354 go\r\n", "250 ok\r\n"}, false, "354 go"},
		"no text":           {[]string{"220 hi\r\n", "250 hi\r\n", "550\r\n", "250 ok\r\n"}, true, "550 (the server gave no reason)"},
		"control bytes":     {[]string{"220 hi\r\n", "250 hi\r\n", "550-5.1.1 no\x00\x1b[31m \xff such\r\n550 5.1.1 user\r\n", "250 ok\r\n"}, true, "550 5.1.1 no [31m \uFFFD such user"},
		"long text":         {[]string{"220 hi\r\n", "250 hi\r\n", "550 " + strings.Repeat("é", 5000) + "\r\n", "250 ok\r\n"}, true, strings.Repeat("é", maxReplyText/2) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSink(t, scripted(t, c.lines...), "command_timeout=20s")
			r, _ := attemptOnce(t, s, delivery(t, simple()))
			if c.permanent {
				wantPermanent(t, r, c.words)
			} else {
				wantRetry(t, r, c.words)
			}
			if text := r.Err.Error(); len(text) > 1000 || strings.ContainsAny(text, "\r\n\x00\x1b") {
				t.Errorf("text %q", text)
			}
			if strings.Contains(string(r.Receipt), `\u0000`) {
				t.Errorf("receipt %s", r.Receipt)
			}
		})
	}
}

func TestTLSConfigIsNotChanged(t *testing.T) {
	t.Parallel()
	mine := &tls.Config{MinVersion: tls.VersionTLS13}
	s := newSinkOf(t, Config{URL: "smtp://mail.example.com", TLS: mine})
	if mine.ServerName != "" || s.target.TLS.ServerName != "mail.example.com" || s.target.TLS.MinVersion != tls.VersionTLS13 {
		t.Errorf("%+v", s.target.TLS)
	}
}

// TestDroppedWhileSending: a mail whose end was never sent cannot have been delivered.
func TestDroppedWhileSending(t *testing.T) {
	t.Parallel()
	address := scripted(t, "220 hi\r\n", "250 hi\r\n", "250 ok\r\n", "250 ok\r\n", "354 go\r\n")
	e := simple()
	e.Attachments = []email.Attachment{{Filename: "large", Content: make([]byte, 6<<20)}} // more than the sockets' buffers hold
	r, receipt := attemptOnce(t, newSink(t, address, ""), delivery(t, e))
	wantRetry(t, r, "while the mail was being sent")
	if receipt.Recipients["bob@example.com"].Unsure {
		t.Errorf("receipt %+v", receipt)
	}
}

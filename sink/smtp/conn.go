package smtp

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wneessen/go-mail/smtp"
)

// conn is an open session with the server. One goroutine at a time uses it. The library opens
// the session (greeting, EHLO, STARTTLS, AUTH). This package runs the mail transaction itself,
// because it needs the reply for each recipient.
type conn struct {
	target *target
	wire   *wire
	client *smtp.Client
	uses   int
	expiry *time.Timer

	smtputf8, eightBitMIME, size, pipelining bool

	maxSize       int // 0 if not announced
	maxRecipients int // 0 if not announced
}

// open connects, encrypts and authenticates.
func open(ctx context.Context, t *target) (*conn, error) {
	dialer := net.Dialer{Timeout: t.DialTimeout}
	nc, err := dialer.DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", t.address, err)
	}
	c := &conn{target: t, wire: &wire{Conn: nc}}
	stop := c.wire.cutWith(ctx)
	err = c.greet()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("opening a session with %s: %w", t.address, t.redact(explain(ctx, err, t.CommandTimeout)))
	}
	return c, nil
}

func (c *conn) greet() error {
	t := c.target
	var nc net.Conn = c.wire
	c.wire.allow(t.CommandTimeout)
	if t.security == implicitTLS {
		encrypted := tls.Client(c.wire, t.TLS)
		if err := encrypted.Handshake(); err != nil {
			return fmt.Errorf("TLS handshake: %w", err)
		}
		nc = encrypted
	}
	c.wire.allow(t.CommandTimeout)
	client, err := smtp.NewClient(nc, t.host)
	if err != nil {
		return stepError("greeting", err)
	}
	c.client = client
	c.wire.allow(t.CommandTimeout)
	if err := client.Hello(c.helloName()); err != nil {
		return stepError("EHLO", err)
	}
	if t.security == startTLS || t.security == opportunistic {
		if err := c.startTLS(); err != nil {
			return err
		}
	}
	if t.user != "" {
		if err := c.authenticate(); err != nil {
			return err
		}
	}
	c.extensions()
	return nil
}

func (c *conn) startTLS() error {
	if offered, _ := c.client.Extension("STARTTLS"); !offered {
		if c.target.security == opportunistic {
			return nil
		}
		return errors.New("the server does not offer STARTTLS, which is required (set tls=opportunistic or tls=none in the URL to do without)")
	}
	c.wire.allow(c.target.CommandTimeout)
	if err := c.client.StartTLS(c.target.TLS); err != nil {
		return stepError("STARTTLS", err)
	}
	return nil
}

// mechanisms are the supported authentication mechanisms, in order of preference. All of them
// are used only on encrypted or local connections.
var mechanisms = []struct {
	name string
	auth func(t *target) smtp.Auth
}{
	{"PLAIN", func(t *target) smtp.Auth { return smtp.PlainAuth("", t.user, t.password, t.host, true) }},
	{"LOGIN", func(t *target) smtp.Auth { return smtp.LoginAuth(t.user, t.password, t.host, true) }},
	{"SCRAM-SHA-256", func(t *target) smtp.Auth { return smtp.ScramSHA256Auth(t.user, t.password) }},
	{"CRAM-MD5", func(t *target) smtp.Auth { return smtp.CRAMMD5Auth(t.user, t.password) }},
}

func (c *conn) authenticate() error {
	if _, encrypted := c.client.TLSConnectionState(); !encrypted && !c.isLoopback() {
		return errors.New("the password is not sent, because the connection is not encrypted")
	}
	_, list := c.client.Extension("AUTH")
	offered := strings.Fields(strings.ToUpper(list))
	for _, m := range mechanisms {
		if !slices.Contains(offered, m.name) {
			continue
		}
		c.wire.allow(c.target.CommandTimeout)
		if err := c.client.Auth(m.auth(c.target)); err != nil {
			return stepError("AUTH "+m.name, err)
		}
		return nil
	}
	return fmt.Errorf("the server offers no supported authentication mechanism (it offers %q)", oneLine(list))
}

func (c *conn) isLoopback() bool {
	a, ok := c.wire.RemoteAddr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// helloName returns the name for EHLO: the configured one, or an address literal (RFC 5321,
// 4.1.4).
func (c *conn) helloName() string {
	if c.target.Hello != "" {
		return c.target.Hello
	}
	a, ok := c.wire.LocalAddr().(*net.TCPAddr)
	switch {
	case !ok:
		return "localhost"
	case a.IP.To4() != nil:
		return "[" + a.IP.String() + "]"
	}
	return "[IPv6:" + a.IP.String() + "]"
}

func (c *conn) extensions() {
	c.smtputf8, _ = c.client.Extension("SMTPUTF8")
	c.eightBitMIME, _ = c.client.Extension("8BITMIME")
	c.pipelining, _ = c.client.Extension("PIPELINING")
	var value string
	if c.size, value = c.client.Extension("SIZE"); c.size {
		c.maxSize, _ = strconv.Atoi(value) // without a number there is no limit
	}
	_, value = c.client.Extension("LIMITS") // RFC 9422
	for word := range strings.FieldsSeq(value) {
		if n, ok := strings.CutPrefix(word, "RCPTMAX="); ok {
			c.maxRecipients, _ = strconv.Atoi(n)
		}
	}
}

// command sends a command and reads its reply. After an error the connection cannot be used
// anymore.
func (c *conn) command(timeout time.Duration, format string, args ...any) (reply, error) {
	c.wire.allow(timeout)
	id, err := c.client.Text.Cmd(format, args...)
	if err != nil {
		return reply{}, err
	}
	c.client.Text.StartResponse(id)
	defer c.client.Text.EndResponse(id)
	return c.answer()
}

// rcpt sends recipients and returns a function that reads the reply for the i-th; it must be
// called for each in order. If the server supports PIPELINING (RFC 2920), all recipients are
// sent at once, which saves a round trip for each.
func (c *conn) rcpt(recipients []string) (answers func(i int) (reply, error)) {
	const command = "RCPT TO:<%s>"
	if !c.pipelining {
		return func(i int) (reply, error) { return c.command(c.target.CommandTimeout, command, recipients[i]) }
	}
	c.wire.allow(c.target.CommandTimeout)
	var err error
	for _, r := range recipients {
		_, err = fmt.Fprintf(c.client.Text.W, command+"\r\n", r)
	}
	if err == nil {
		err = c.client.Text.W.Flush()
	}
	return func(int) (reply, error) {
		if err != nil {
			return reply{}, err
		}
		c.wire.allow(c.target.CommandTimeout)
		return c.answer()
	}
}

// answer reads one reply, of one line or more. It does not use the reader of the standard
// library, which rejects lines without text (RFC 5321, 4.2.1).
func (c *conn) answer() (reply, error) {
	var code int
	var text []string
	for {
		line, err := c.client.Text.ReadLine()
		if err != nil {
			return reply{}, err
		}
		n, err := strconv.Atoi(line[:min(3, len(line))])
		more := len(line) > 3 && line[3] == '-'
		if err != nil || n < 200 || n > 599 || code != 0 && n != code || len(line) > 3 && !more && line[3] != ' ' {
			return reply{}, fmt.Errorf("invalid SMTP reply: %q", oneLine(line))
		}
		code = n
		text = append(text, line[min(4, len(line)):])
		if !more {
			return newReply(code, strings.Join(text, "\n")), nil
		}
	}
}

// data sends a mail's content. handedOver says that all of it may have reached the server, so
// that the result is unknown after an error.
func (c *conn) data(content []byte) (r reply, handedOver bool, err error) {
	c.wire.allow(c.target.DataTimeout)
	w := c.client.Text.DotWriter()
	if _, err := w.Write(content); err != nil {
		// Not closed, because that would end a partial mail as if it were complete.
		return reply{}, false, err
	}
	if err := w.Close(); err != nil {
		return reply{}, true, err
	}
	r, err = c.answer()
	return r, true, err
}

// alive checks that the server responds.
func (c *conn) alive(ctx context.Context) bool {
	stop := c.wire.cutWith(ctx)
	r, err := c.command(min(c.target.CommandTimeout, 5*time.Second), "NOOP")
	return stop() && err == nil && r.ok()
}

// quit ends the session; it ignores errors.
func (c *conn) quit() {
	_, _ = c.command(min(c.target.CommandTimeout, 2*time.Second), "QUIT")
	c.close()
}

func (c *conn) close() { _ = c.wire.Close() }

// stepError returns the error of a step of opening the session, with the server's reply if
// there is one.
func stepError(step string, err error) error {
	var answer *textproto.Error
	if errors.As(err, &answer) {
		return &replyError{step, newReply(answer.Code, answer.Msg)}
	}
	return fmt.Errorf("%s: %w", step, err)
}

// explain adds the reason to an error if ctx or a timeout ended a step.
func explain(ctx context.Context, err error, limit time.Duration) error {
	var timeout net.Error
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("cut, because the attempt timed out: %w", context.Cause(ctx))
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no reply within %s: %w", limit, err)
	}
	return err
}

// redact removes the password from a server's reply, in case the server repeats it.
func (t *target) redact(err error) error {
	var answer *replyError
	if t.password == "" || !errors.As(err, &answer) {
		return err
	}
	r := answer.reply
	for _, secret := range []string{
		t.password,
		base64.StdEncoding.EncodeToString([]byte(t.password)),
		base64.StdEncoding.EncodeToString([]byte("\x00" + t.user + "\x00" + t.password)),
	} {
		r.text = strings.ReplaceAll(r.text, secret, "…")
	}
	return &replyError{answer.step, r}
}

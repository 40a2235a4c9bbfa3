// Package smtp is the sink that delivers mails (package email) to an SMTP
// server: with pooled connections, STARTTLS, authentication, a timeout for
// every step, and the answer to each recipient on record.
//
// # What an attempt ends with
//
// Recipients are settled one by one. What the server accepted is never sent to
// that recipient again: the receipt of an attempt tells of every recipient so
// far, the next attempt reads it from the story and goes on with the rest.
//
//   - All accepted: delivered.
//   - Some deferred (4xx answers, network trouble, a timeout; a 552 that may say that
//     the mail has too many recipients): tried again for these alone. Refusals stand
//     meanwhile.
//   - None deferred any more, some refused (5xx answers): failed for good. The
//     error names the refused recipients, the receipt says who has the mail.
//     If such a dead letter is replayed, it is tried again for the refused
//     recipients alone.
//
// A connection that ends after the whole mail was handed over and before the
// server answered leaves unknown whether it was accepted. The mail is sent
// again then (at least once), with the same Message-ID, and the receipt marks
// the recipient as unsure.
//
// What fails before the server looks at the mail (name lookup, connection,
// certificate, password) is always tried again, whatever the code: mails
// shall not die of a changed password.
package smtp

import (
	"crypto/tls"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/login"
)

// Config says which server to use and how. Only URL is required.
type Config struct {
	// URL names the server:
	//
	//	smtp://user:password@mail.example.com:587    STARTTLS is required
	//	smtp+starttls://…                            the same
	//	smtps://mail.example.com:465                 TLS from the start
	//
	// The port defaults to 587 and 465. Parameters: tls=required (default),
	// tls=opportunistic (STARTTLS where the server offers it), tls=none; and
	// connections, idle_timeout, dial_timeout, command_timeout, data_timeout,
	// hello for the fields below, which they override. User and password are
	// percent-encoded. They are never sent unencrypted, except to loopback.
	URL string
	// Connections is how many there are at most at the same time (default 8).
	Connections int
	// IdleTimeout closes connections that were not used for so long (default
	// 30 s).
	IdleTimeout time.Duration
	// DialTimeout bounds the connection's opening, up to the TCP handshake
	// (default 10 s).
	DialTimeout time.Duration
	// CommandTimeout bounds the wait for one answer (default 30 s).
	CommandTimeout time.Duration
	// DataTimeout bounds sending one mail's content and the wait for its
	// answer (default 2 min). The queue's timeout bounds all of it together.
	DataTimeout time.Duration
	// Hello is the name this machine introduces itself by (default: its name
	// where that has a domain, else its address).
	Hello string
	// TLS is used for encrypted connections; ServerName and MinVersion get
	// defaults. Nil trusts the system's authorities.
	TLS *tls.Config
}

// security is how the connection gets encrypted.
type security int

const (
	startTLS      security = iota // required
	implicitTLS                   // from the first byte
	opportunistic                 // STARTTLS if offered
	unencrypted
)

// target is a checked Config.
type target struct {
	Config
	host     string
	address  string // host:port
	user     string
	password string
	security security
}

// urlField names the setting in errors.
const urlField = "smtp_url"

// parse checks the config and fills in defaults. Errors never hold the URL, nor the
// parser's words on it, for either may hold a part of the password.
func parse(cfg Config) (*target, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || login.Misread(cfg.URL) {
		return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: urlField, Message: urlField + " cannot be read",
			Hint: "smtp://user:password@host:port, with special characters in user and password percent-encoded, such as / as %2F"}
	}
	t := &target{Config: cfg, host: u.Hostname()}
	port := "587"
	switch u.Scheme {
	case "smtp", "smtp+starttls":
	case "smtps":
		t.security, port = implicitTLS, "465"
	default:
		return nil, posthaste.Invalidf(urlField, "%s must begin with smtp://, smtp+starttls:// or smtps://", urlField)
	}
	if t.host == "" || strings.ContainsAny(t.host, "[]") || strings.Contains(t.host, ":") && !strings.HasPrefix(u.Host, "[") || u.Opaque != "" || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		return nil, posthaste.Invalidf(urlField, "%s must be a host, with a port if needed, and nothing behind it but parameters", urlField)
	}
	if p := u.Port(); p != "" {
		port = p
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, posthaste.Invalidf(urlField, "%s has a port that is none: it must be 1 to 65535", urlField)
	}
	t.address = net.JoinHostPort(t.host, port)
	if u.User != nil {
		t.user = u.User.Username()
		t.password, _ = u.User.Password()
		if t.user == "" || t.password == "" {
			return nil, posthaste.Invalidf(urlField, "%s must have both user and password, or none", urlField)
		}
	}
	if err := t.parameters(u); err != nil {
		return nil, err
	}
	if t.user != "" && t.security == unencrypted && !isLoopbackName(t.host) {
		return nil, &posthaste.Error{Code: posthaste.CodeRefused, Field: urlField,
			Message: urlField + " has a password that tls=none would send unencrypted",
			Hint:    "leave out tls=none, or the password"}
	}
	t.defaults()
	return t, nil
}

// parameters reads what stands behind the "?".
func (t *target) parameters(u *url.URL) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return posthaste.Invalidf(urlField, "%s has parameters that cannot be read", urlField)
	}
	durations := map[string]*time.Duration{
		"idle_timeout": &t.IdleTimeout, "dial_timeout": &t.DialTimeout,
		"command_timeout": &t.CommandTimeout, "data_timeout": &t.DataTimeout,
	}
	for name, values := range query {
		value := values[len(values)-1]
		switch into, isDuration := durations[name]; {
		case isDuration:
			if *into, err = time.ParseDuration(value); err != nil || *into <= 0 {
				return posthaste.Invalidf(urlField, "%s: %s must be a duration such as 10s", urlField, name)
			}
		case name == "connections":
			if t.Connections, err = strconv.Atoi(value); err != nil || t.Connections < 1 {
				return posthaste.Invalidf(urlField, "%s: connections must be a number above 0", urlField)
			}
		case name == "hello":
			t.Hello = value
		case name == "tls":
			if err := t.encryption(u.Scheme, value); err != nil {
				return err
			}
		default:
			return posthaste.Invalidf(urlField, "%s has an unknown parameter %q", urlField, name)
		}
	}
	return nil
}

func (t *target) encryption(scheme, value string) error {
	mode, ok := map[string]security{"required": startTLS, "opportunistic": opportunistic, "none": unencrypted}[value]
	if !ok {
		return posthaste.Invalidf(urlField, "%s: tls must be required, opportunistic or none", urlField)
	}
	if mode != startTLS && scheme != "smtp" {
		return posthaste.Invalidf(urlField, "%s: %s:// and tls=%s contradict each other", urlField, scheme, value)
	}
	if scheme == "smtp" {
		t.security = mode
	}
	return nil
}

func (t *target) defaults() {
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{
		{&t.IdleTimeout, 30 * time.Second}, {&t.DialTimeout, 10 * time.Second},
		{&t.CommandTimeout, 30 * time.Second}, {&t.DataTimeout, 2 * time.Minute},
	} {
		if *d.value <= 0 {
			*d.value = d.or
		}
	}
	if t.Connections <= 0 {
		t.Connections = 8
	}
	if t.Hello == "" {
		// Many servers turn away a name without a domain.
		if name, err := os.Hostname(); err == nil && strings.Contains(strings.Trim(name, "."), ".") {
			t.Hello = name
		}
	}
	config := t.TLS.Clone()
	if config == nil {
		config = &tls.Config{}
	}
	if config.ServerName == "" {
		config.ServerName = t.host
	}
	if config.MinVersion == 0 {
		config.MinVersion = tls.VersionTLS12
	}
	t.TLS = config
}

// isLoopbackName reports whether host can only be this machine.
func isLoopbackName(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

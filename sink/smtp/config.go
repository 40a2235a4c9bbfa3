// Package smtp is the sink that delivers mails (package email) to an SMTP server. It pools
// connections, supports STARTTLS and authentication, has a timeout for every step, and
// records the answer for each recipient.
//
// # Results of an attempt
//
// Each recipient has its own result. A mail is never sent again to a recipient for which the
// server accepted it: the receipt of an attempt has the results of all recipients so far, and
// the next attempt reads it from the attempt history and continues with the others.
//
//   - All recipients are accepted: delivered.
//   - Some are deferred (4xx replies, network errors, timeouts; a 552 that may mean too many
//     recipients): the mail is retried for these recipients only. Refused recipients stay
//     refused.
//   - None is deferred and some are refused (5xx replies): dead-lettered. The error names
//     the refused recipients, and the receipt has the result of each. A replay of the dead
//     letter tries only the refused recipients.
//
// If a connection is lost after the whole mail was sent and before the server's reply, it is
// unknown whether the mail was accepted. The mail is then sent again (at least once) with the
// same Message-ID, and the receipt marks the recipient as unsure.
//
// Errors before the server looks at the mail (name lookup, connection, certificate, password)
// are always retried, whatever the code, so that a changed password dead-letters no mails.
package smtp

import (
	"crypto/tls"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/login"
)

// Config is the configuration of a sink. Only URL is required.
type Config struct {
	// URL names the server:
	//
	//	smtp://user:password@mail.example.com:587    STARTTLS is required
	//	smtp+starttls://…                            the same
	//	smtps://mail.example.com:465                 TLS from the start
	//
	// The port defaults to 587 and 465. Parameters: tls=required (default),
	// tls=opportunistic (STARTTLS if the server offers it), tls=none; and
	// connections, idle_timeout, dial_timeout, command_timeout, data_timeout,
	// hello, which override the fields below. User and password are
	// percent-encoded. They are never sent unencrypted, except to loopback.
	URL string
	// Connections is the maximum number of connections (default 8).
	Connections int
	// IdleTimeout is the time after which unused connections are closed (default 30 s).
	IdleTimeout time.Duration
	// DialTimeout bounds the opening of a connection, up to the TCP handshake (default
	// 10 s).
	DialTimeout time.Duration
	// CommandTimeout bounds the wait for one reply (default 30 s).
	CommandTimeout time.Duration
	// DataTimeout bounds sending the content of one mail and the wait for its reply
	// (default 2 min). The queue's timeout bounds the whole attempt.
	DataTimeout time.Duration
	// Hello is the name in EHLO (default: the host name if it has a domain, otherwise
	// the address).
	Hello string
	// TLS is used for encrypted connections; ServerName and MinVersion get
	// defaults. Nil trusts the system's authorities.
	TLS *tls.Config
}

// security is the kind of encryption.
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

// urlField is the name of the setting in errors.
const urlField = "smtp_url"

// parse validates the config and fills in defaults. Errors never contain the URL or the text
// of the URL parser, because both may contain a part of the password.
func parse(cfg Config) (*target, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || login.Misread(cfg.URL) {
		return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: urlField, Message: urlField + " is not a valid URL",
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
		return nil, posthaste.Invalidf(urlField, "%s must be a host with an optional port, followed only by parameters", urlField)
	}
	if p := u.Port(); p != "" {
		port = p
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, posthaste.Invalidf(urlField, "invalid port in %s: it must be 1 to 65535", urlField)
	}
	t.address = net.JoinHostPort(t.host, port)
	if u.User != nil {
		t.user = u.User.Username()
		t.password, _ = u.User.Password()
		if t.user == "" || t.password == "" {
			return nil, posthaste.Invalidf(urlField, "%s must have both a user and a password, or neither", urlField)
		}
	}
	if err := t.parameters(u); err != nil {
		return nil, err
	}
	if t.user != "" && t.security == unencrypted && !isLoopbackName(t.host) {
		return nil, &posthaste.Error{Code: posthaste.CodeRefused, Field: urlField,
			Message: urlField + " has a password, which tls=none would send unencrypted",
			Hint:    "remove tls=none or the password"}
	}
	t.defaults()
	return t, nil
}

// parameters reads the parameters after the "?".
func (t *target) parameters(u *url.URL) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return posthaste.Invalidf(urlField, "%s has invalid parameters", urlField)
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
		// Many servers reject a name without a domain.
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

// isLoopbackName reports whether host is always this machine.
func isLoopbackName(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

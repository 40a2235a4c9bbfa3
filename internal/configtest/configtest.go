// Package configtest checks the errors of sinks and sources for wrong configurations.
package configtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Checked is a sink or a source, which can check its configuration.
type Checked interface{ Check(context.Context) error }

// Change is a change of a valid configuration, and the error that Check then returns.
type Change[C any] struct {
	name, field string
	code        posthaste.Code
	change      func(*C)
}

// Valid is a change after which the configuration is valid.
func Valid[C any](name string, change func(*C)) Change[C] {
	return Change[C]{name: name, change: change}
}

// Invalid is a change after which the field of the configuration is invalid.
func Invalid[C any](name, field string, change func(*C)) Change[C] {
	return Change[C]{name, field, posthaste.CodeInvalid, change}
}

// Unavailable is a change after which the broker does not answer.
func Unavailable[C any](name string, change func(*C)) Change[C] {
	return Change[C]{name: name, code: posthaste.CodeUnavailable, change: change}
}

// Checks tests the method Check of sinks or sources with a valid configuration and with each
// change of it. Errors must not contain secret. open gets nil for no change.
func Checks[C any, S Checked](t *testing.T, secret string, open func(change func(*C)) S, changes ...Change[C]) {
	t.Helper()
	t.Run("Check", func(t *testing.T) { // which ends once all are checked
		for _, c := range append(changes, Valid[C]("unchanged", nil)) {
			with := open(c.change)
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				check(t, c.name, with, c.code, c.field, secret)
			})
		}
	})
}

// check calls Check, which must return an error with the code, the field and a hint that does
// not contain secret, or nil if code is empty.
func check(t testing.TB, name string, with Checked, code posthaste.Code, field, secret string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := with.Check(ctx)
	var e *posthaste.Error
	if code == "" {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	} else if !errors.As(err, &e) || e.Code != code || e.Field != field || e.Hint == "" || strings.Contains(err.Error(), secret) {
		t.Errorf("%s: %v", name, err)
	}
}

// TLS tests that a sink or source verifies the certificate of its server, which is valid for
// localhost and trusted by right. at returns one that connects to the name of a host.
func TLS[C Checked](t testing.TB, right *tls.Config, at func(host string, trust *tls.Config) C) {
	t.Helper()
	check(t, "the right authority", at("localhost", right), "", "", "")
	for name, with := range map[string]Checked{
		"the system's authorities": at("localhost", nil),
		"another authority":        at("localhost", &tls.Config{RootCAs: x509.NewCertPool()}),
		"another name":             at("127.0.0.1", right),
	} {
		check(t, name, with, posthaste.CodeInvalid, "url", "secret")
		if err := with.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Fields checks that each change of a valid configuration, by field, gives an error that names
// the field and does not contain the word secret.
func Fields[C, T any](t testing.TB, open func(C) (T, error), valid C, changes map[string]func(*C)) {
	t.Helper()
	for field, change := range changes {
		c := valid
		change(&c)
		_, err := open(c)
		var e *posthaste.Error
		if !errors.As(err, &e) || e.Field != field || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// NoPartOfAPassword checks that URLs with a password that is not percent-encoded, and could
// be read as host, port, path and options, give errors without a part of the password.
// refused returns the error of a URL with a password.
func NoPartOfAPassword(t testing.TB, refused func(password string) error) {
	t.Helper()
	for _, password := range []string{"hun/ter2", "hun#ter2", "hun?ter2", "31/ter2", "31#ter2", "31?ter2", "hun%ter2", "hun ter2", "hun\x7fter2"} {
		err := refused(password)
		var e *posthaste.Error
		if !errors.As(err, &e) || e.Code != posthaste.CodeInvalid || e.Field != "url" || !strings.Contains(e.Hint, "percent-encoded") {
			t.Errorf("%q: %v", password, err)
		} else if text := e.Error() + e.Hint; strings.Contains(text, "hun") || strings.Contains(text, "ter2") || strings.Contains(text, "31") || e.Cause != nil {
			t.Errorf("%q: %s", password, text)
		}
	}
}

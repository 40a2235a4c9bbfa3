// Package configtest checks what sinks and sources say of configurations that are at
// fault.
package configtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	posthaste "github.com/posthaste-mq/posthaste"
)

// Check asks what is wrong with a configuration and wants an error of code with the
// field, a hint, and without secret; none at all where code is empty.
func Check(t testing.TB, name string, with interface{ Check(context.Context) error }, code posthaste.Code, field, secret string) {
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

// TLS looks that a certificate is verified, of which the server has one for localhost
// that right trusts. at is who reaches it by the name of a host.
func TLS[C interface{ Check(context.Context) error }](t testing.TB, right *tls.Config, at func(host string, trust *tls.Config) C) {
	t.Helper()
	Check(t, "the right authority", at("localhost", right), "", "", "")
	for name, with := range map[string]interface{ Check(context.Context) error }{
		"the system's authorities": at("localhost", nil),
		"another authority":        at("localhost", &tls.Config{RootCAs: x509.NewCertPool()}),
		"another name":             at("127.0.0.1", right),
	} {
		Check(t, name, with, posthaste.CodeInvalid, "url", "secret")
		if err := with.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Refused wants an error that names the field, and does not hold the word secret.
func Refused(t testing.TB, field string, err error) {
	t.Helper()
	var e *posthaste.Error
	if !errors.As(err, &e) || e.Field != field || strings.Contains(err.Error(), "secret") {
		t.Errorf("%s: %v", field, err)
	}
}

// NoPartOfAPassword looks that passwords which are not percent-encoded, and may so be
// taken for host, port, path and options of a URL, are refused without a part of them.
// refused is what is said of a URL with that password.
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

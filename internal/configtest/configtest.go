// Package configtest checks what sinks and sources say of configurations that are at
// fault.
package configtest

import (
	"context"
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

// Refused wants an error that names the field, and does not hold the word secret.
func Refused(t testing.TB, field string, err error) {
	t.Helper()
	var e *posthaste.Error
	if !errors.As(err, &e) || e.Field != field || strings.Contains(err.Error(), "secret") {
		t.Errorf("%s: %v", field, err)
	}
}

package brokertest

import (
	"context"
	"testing"

	"github.com/posthaste-mq/posthaste/source"
)

// OpenSource returns the source of a configuration into a ledger. change changes the
// configuration before; it may be nil.
func OpenSource[C any](t *testing.T, open func(source.Ledger, C) (*source.Source, error), ledger source.Ledger, c C, change func(*C)) *source.Source {
	t.Helper()
	if change != nil {
		change(&c)
	}
	s, err := open(ledger, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// OpenSession opens a session of a source's broker, which the caller closes.
func OpenSession(ctx context.Context, t *testing.T, b source.Broker) source.Session {
	t.Helper()
	s, err := b.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ReadSession reads n messages from a session.
func ReadSession(ctx context.Context, t *testing.T, s source.Session, n int) (got []source.Arrival) {
	t.Helper()
	for len(got) < n {
		more, err := s.Read(ctx, n-len(got))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, more...)
	}
	return got
}

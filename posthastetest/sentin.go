package posthastetest

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

// SentIn returns the payloads of the messages that an open transaction has sent, oldest first,
// decoded by content type as in [posthaste.Decode]. tx is postgres.In or postgres.InSQL of it: a
// test of code that sends in a transaction calls SentIn before it rolls that back. If T is
// [posthaste.Kinded], other kinds are left out. Duplicates, which were not stored, are not among
// them. The transaction's user must own the schema posthaste, as that of [Database] does.
func SentIn[T any](t testing.TB, tx postgres.Tx, codecs ...posthaste.Codec) []T {
	t.Helper()
	messages, err := tx.Messages(t.Context())
	if err != nil {
		t.Fatalf("the messages of the transaction: %v", err)
	}
	var zero T
	kinded, _ := any(zero).(posthaste.Kinded)
	var sent []T
	for _, m := range messages {
		if kinded != nil && kinded.Kind() != m.Kind {
			continue
		}
		sent = append(sent, decoded[T](t, m, codecs))
	}
	return sent
}

func decoded[T any](t testing.TB, m posthaste.MessageInfo, codecs []posthaste.Codec) (payload T) {
	t.Helper()
	if err := posthaste.Decode(posthaste.RawDelivery{Payload: m.Payload, ContentType: m.ContentType}, &payload, codecs...); err != nil {
		t.Fatalf("message %s of queue %s: %v", m.ID, m.Queue, err)
	}
	return payload
}

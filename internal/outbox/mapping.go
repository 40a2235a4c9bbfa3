// Package outbox takes over outbox tables that somebody wrote by hand: it moves
// the rows that their poller has not sent yet into the ledger, and installs a
// trigger that from then on sends each inserted row in its writer's transaction.
// A row is marked in the table by the same transaction that sends it, so that
// it is sent by the ledger or by a poller that locks what it publishes, never
// by both.
package outbox

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// Mapping says which columns of the table hold what. Columns are named as they
// are, or in any case where only one fits; an empty name means none.
type Mapping struct {
	// Table is its name, with or without its schema.
	Table string
	// ID is the column that identifies a row. It becomes the message's
	// reference and, with the table's name, its dedupe key. Required.
	ID string
	// Payload is of type json, jsonb, text or bytea. Required.
	Payload string
	// ContentType is what the payload is: unless given application/json for
	// json and jsonb, text/plain for text, application/octet-stream for bytea.
	ContentType string
	// Queue is where all rows go, QueueColumn the column that says so for each.
	// One of them is required.
	Queue, QueueColumn string
	// Key and Kind are columns for those of the message.
	Key, Kind string
	// Headers is a column with a JSON object. HeaderColumns makes headers of
	// single columns, by the header's name.
	Headers       string
	HeaderColumns map[string]string
	// CreatedAt is the column by which rows are taken, oldest first, before the
	// id. It becomes the header created-at.
	CreatedAt string
	// SendAt is a column of times before which messages must not be handed out.
	// SendAtZone is the time zone that those of a timestamp without one are meant in,
	// such as Europe/Berlin or UTC.
	SendAt, SendAtZone string
	// Sent marks what was sent: a boolean that turns true, or a time that is
	// null before. For any other type SentValue is the value that means sent.
	// Without it, Delete says that the poller deletes what it has sent.
	Sent, SentValue string
	Delete          bool
	// Where is a condition in SQL that rows must fulfil beside that.
	Where string
}

// check finds what is wrong without a look at the database, all at once.
func (m Mapping) check() error {
	var faults []error
	say := func(field, message, hint string) {
		faults = append(faults, &posthaste.Error{Code: posthaste.Invalid, Field: field, Message: message, Hint: hint})
	}
	for _, x := range []struct{ field, value, hint string }{
		{"table", m.Table, "name the outbox table: --table public.outbox"},
		{"id", m.ID, "name the column that identifies a row: --id id"},
		{"payload", m.Payload, "name the column with what is to be sent: --payload payload"},
	} {
		if x.value == "" {
			say(x.field, "--"+x.field+" is missing", x.hint)
		}
	}
	if (m.Queue == "") == (m.QueueColumn == "") {
		say("queue", "say either --queue or --queue-column", "--queue orders sends all rows to one queue, --queue-column takes each row's from a column")
	}
	if (m.Sent == "") != m.Delete {
		say("sent", "say either --sent or --delete", "--sent names the column that marks what was sent; --delete is for a poller that deletes what it has sent")
	}
	if m.SendAtZone != "" && m.SendAt == "" {
		say("send-at-zone", "--send-at-zone says nothing without --send-at", "")
	}
	if m.SentValue != "" && m.Sent == "" {
		say("sent-value", "--sent-value says nothing without --sent", "")
	}
	return errors.Join(faults...)
}

// sortedKeys keeps what is made of a map the same from run to run.
func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// literal quotes a text for SQL, whatever standard_conforming_strings says.
func literal(s string) string {
	if strings.Contains(s, `\`) {
		return ` E'` + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `'`, `''`) + `'`
	}
	return `'` + strings.ReplaceAll(s, `'`, `''`) + `'`
}

func identifier(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

func invalid(field, hint, format string, args ...any) error {
	return &posthaste.Error{Code: posthaste.Invalid, Field: field, Message: fmt.Sprintf(format, args...), Hint: hint}
}

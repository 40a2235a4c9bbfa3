// Package outbox migrates hand-written outbox tables. It moves the rows that their poller has
// not sent yet into the ledger, and installs a trigger that sends each row inserted later in
// its writer's transaction. The transaction that sends a row also marks it in the table, so
// that either the ledger or a poller that locks its rows sends it, never both.
package outbox

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// Mapping describes the columns of the table. A column's name is exact, or in any case if only
// one column matches; an empty name means none.
type Mapping struct {
	// Table is the table's name, with or without its schema.
	Table string
	// ID is the column that identifies a row. It becomes the message's reference and, with the
	// table's name, its dedupe key. Required.
	ID string
	// Payload is a column of type json, jsonb, text or bytea. Required.
	Payload string
	// ContentType is the payload's content type. The default is application/json for json and
	// jsonb, text/plain for text, application/octet-stream for bytea.
	ContentType string
	// Queue is the queue of all rows. QueueColumn is the column with the queue of each row.
	// One of them is required.
	Queue, QueueColumn string
	// Key and Kind are the columns of the message's key and kind.
	Key, Kind string
	// Headers is a column with a JSON object. HeaderColumns maps header names to columns.
	Headers       string
	HeaderColumns map[string]string
	// CreatedAt is the column by which rows are ordered, before the id. It becomes the header
	// created-at.
	CreatedAt string
	// SendAt is a column of times before which messages must not be handed out. SendAtZone is
	// the time zone of a timestamp without one, such as Europe/Berlin or UTC.
	SendAt, SendAtZone string
	// Sent is the column that marks sent rows: a boolean that becomes true, or a time that is
	// null before. For any other type SentValue is the value that means sent. Without Sent,
	// Delete says that the poller deletes the rows that it has sent.
	Sent, SentValue string
	Delete          bool
	// Where is an additional condition in SQL for the rows.
	Where string
}

// check reports all faults that can be found without the database.
func (m Mapping) check() error {
	var faults []error
	say := func(field, message, hint string) {
		faults = append(faults, &posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: message, Hint: hint})
	}
	for _, x := range []struct{ field, value, hint string }{
		{"table", m.Table, "name the outbox table: --table public.outbox"},
		{"id", m.ID, "name the column that identifies a row: --id id"},
		{"payload", m.Payload, "name the column with the payload: --payload payload"},
	} {
		if x.value == "" {
			say(x.field, "--"+x.field+" is missing", x.hint)
		}
	}
	if (m.Queue == "") == (m.QueueColumn == "") {
		say("queue", "say either --queue or --queue-column", "--queue orders sends all rows to one queue, --queue-column reads the queue of each row from a column")
	}
	if (m.Sent == "") != m.Delete {
		say("sent", "say either --sent or --delete", "--sent names the column that marks sent rows; --delete is for a poller that deletes the rows that it has sent")
	}
	if m.SendAtZone != "" && m.SendAt == "" {
		say("send-at-zone", "--send-at-zone requires --send-at", "")
	}
	if m.SentValue != "" && m.Sent == "" {
		say("sent-value", "--sent-value requires --sent", "")
	}
	return errors.Join(faults...)
}

// sortedKeys makes output that depends on a map the same in each run.
func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// literal quotes a text for SQL, whatever standard_conforming_strings is.
func literal(s string) string {
	if strings.Contains(s, `\`) {
		return ` E'` + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `'`, `''`) + `'`
	}
	return `'` + strings.ReplaceAll(s, `'`, `''`) + `'`
}

func identifier(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

func invalid(field, hint, format string, args ...any) error {
	return &posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: fmt.Sprintf(format, args...), Hint: hint}
}

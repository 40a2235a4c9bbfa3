package ledger_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// badInput reports whether an error is a PH400 that names the field, one of fields if any are given.
func badInput(err error, fields ...string) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "PH400" && pg.Code != "PH404" || pg.ColumnName == "" || pg.Message == "" {
		return false
	}
	for _, field := range fields {
		if pg.ColumnName == field {
			return true
		}
	}
	return len(fields) == 0
}

// Any filter of dead letters or of a subscription either fails as bad input or is accepted. The
// normal form of a subscription's filter, parsed again, is the same; a matching message passes
// it, and an empty one does not.
func FuzzFilters(f *testing.F) {
	for _, seed := range []string{`{}`, `null`, `[]`, `{"kind":"paid"}`, `{"kind":["paid","refunded","paid"],"headers":{"region":["eu","us"],"":"b"}}`, `{"headers":{"0":"a","headers":"b"}}`,
		`{"headers":{"traceparent":"x"}}`, `{"headers":{}}`, `{"kind":[]}`, `{"kind":[[]]}`, `{"kind":null}`, `{"queue":"q","subscription":"default","died_from":"2030-01-31T12:00:00Z"}`,
		`{"queue":"none"}`, `{"subscription":"default"}`, `{"error":"NO","term":"t","key":"k","kind":"x","reference":"r"}`, `{"died_before":"yesterday","died_from":"never"}`, `{"died_from":1}`, `{"color":"red"}`, `{"":{}}`} {
		f.Add(seed)
	}
	s := begin(f, testpg.New(f))
	f.Fuzz(func(t *testing.T, data string) {
		if err := s.QueryRow(t.Context(), `select to_jsonb($1::text::json)`, data).Scan(new([]byte)); err != nil {
			t.Skip("PostgreSQL knows no such JSON")
		}
		if err := s.QueryRow(t.Context(), `select posthaste.dead_filter($1::text::jsonb) is null`, data).Scan(new(bool)); err != nil && !badInput(err) {
			t.Errorf("dead_filter(%q) ended with %v", data, err)
		}
		var read *string
		err := s.QueryRow(t.Context(), `select posthaste.subscription_filter($1::text::jsonb)::text`, data).Scan(&read)
		if err != nil {
			if !badInput(err, "filter") {
				t.Errorf("subscription_filter(%q) ended with %v", data, err)
			}
			return
		}
		if read == nil {
			return
		}
		var wanted struct {
			Kind    []string
			Headers map[string][]string
		}
		if err := json.Unmarshal([]byte(*read), &wanted); err != nil {
			t.Fatal(err)
		}
		kind, headers := "", map[string]string{}
		for _, word := range wanted.Kind {
			kind = word
		}
		for name, words := range wanted.Headers {
			headers[name] = words[0]
		}
		message, err := json.Marshal(headers)
		if err != nil {
			t.Fatal(err)
		}
		var same, passes, nothing bool
		if err := s.QueryRow(t.Context(), `select posthaste.subscription_filter(f)::text = $1, posthaste.passes(f, $2, $3::text::jsonb), posthaste.passes(f, null, null)
			from (select $1::text::jsonb) x (f)`, *read, kind, string(message)).Scan(&same, &passes, &nothing); err != nil {
			t.Fatal(err)
		}
		if !same || !passes || nothing {
			t.Errorf("%q became %s: parsed again the same %v, passed by a matching message %v, and by an empty one %v", data, *read, same, passes, nothing)
		}
	})
}

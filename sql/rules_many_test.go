package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// sendKeyed sends messages to keyed queue q together, one with each key, of kind kind.
func sendKeyed(ctx context.Context, conn *pgx.Conn, kind string, keys ...string) (ids []int64, err error) {
	n := len(keys)
	err = conn.QueryRow(ctx, `select posthaste.send_rows(array_fill('q'::text, array[$1::int]), array_fill('1'::bytea, array[$1::int]), null, $2, array_fill($3::text, array[$1::int]),
		null, null, null, null, null, null, true)`, n, keys, kind).Scan(&ids)
	return ids, err
}

// sendTogether is sendKeyed of a session.
func (s *session) sendTogether(kind string, keys ...string) []int64 {
	s.t.Helper()
	ids, err := sendKeyed(s.t.Context(), s.Conn, kind, keys...)
	if err != nil {
		s.t.Fatalf("sending %v: %v", keys, err)
	}
	return ids
}

// position takes a position in the open transaction, as a send does: after the transaction's id.
func (s *session) position() int64 {
	s.t.Helper()
	s.exec(`select pg_current_xact_id()`)
	return get[int64](s, `select nextval('posthaste.positions')`)
}

// A key has one lane, however its messages were sent.
func TestRuleAKeyHasOneLane(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"ordered": true, "lanes": 8}`)
		keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		var want []int64
		for _, key := range keys {
			want = append(want, s.sendKey(key))
		}
		s.sendTogether("k", keys...)
		got := s.take(100)
		if !slices.Equal(ascending(messages(got)), want) {
			return fmt.Sprintf("%v was handed out, want the first of each key, %v", messages(got), want)
		}
		return ""
	}, without("the lane of the key", patch{file: "insert_entries.sql", old: "posthaste.key_lane(nullif(x.key, ''), q.width) as lane", new: "0 as lane"}))
}

// In an ordered queue each message needs a key, also where many are sent.
func TestManyNeedKeys(t *testing.T) {
	t.Parallel()
	s := ordered(t, testpg.New(t))
	for _, keys := range []string{`null`, `'{a,""}'`, `'{a,null}'`} {
		pg := s.refusal(`select posthaste.send_rows('{q,q}', '{1,1}', null, ` + keys + `, null, null, null, null, null, null, null, true)`)
		if pg == nil || pg.Code != "PH400" || pg.ColumnName != "key" {
			t.Errorf("keys %s: %v, want PH400 for the key", keys, pg)
		}
	}
}

// ◆ The functions check each message, and no role can bypass them. An insert or a COPY by a role is
// denied, with all columns and with few.
func TestRolesInsertByFunctionsAlone(t *testing.T) {
	t.Parallel()
	s := ordered(t, testpg.New(t))
	for _, role := range []string{"posthaste_sender", "posthaste_receiver", "posthaste_admin"} {
		s.exec(`set role ` + role)
		for _, columns := range []string{"queue_id, payload", "pos, queue_id, lane, key, payload", "ord, queue_id, key, payload"} {
			if code := s.code(`insert into posthaste.entries_other (` + columns + `) select ` + strings.Repeat("null, ", strings.Count(columns, ",")) + `'1'`); code != "42501" {
				t.Errorf("%s inserts %s: %q, want 42501", role, columns, code)
			}
			var pg *pgconn.PgError
			_, err := s.PgConn().CopyFrom(t.Context(), strings.NewReader(""), `copy posthaste.entries_other (`+columns+`) from stdin`)
			if !errors.As(err, &pg) || pg.Code != "42501" {
				t.Errorf("%s copies %s: %v, want 42501", role, columns, err)
			}
		}
		s.exec(`reset role`)
	}
}

// Sending large payloads together writes no temporary file.
func TestRuleLargePayloadsNeedNoFile(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`create temp table given as select array_agg(convert_to(repeat(g::text, 100000), 'UTF8')) as payloads from generate_series(1, 9) g`)
		s.exec(`set work_mem = '64kB'`)
		s.exec(`begin`)
		s.exec(`set local temp_file_limit = '100kB'`)
		code := s.code(`select posthaste.send_rows(array_fill('q'::text, array[9]), payloads, null, null, null, null, null, null, null, null, null, true) from given`)
		s.exec(`rollback`)
		if code != "" {
			return "sending 9 payloads of 100 kB ends with " + code
		}
		return ""
	}, without("reading them one by one", patch{file: "insert_entries.sql", old: "from (select unnest(p_payloads) as x) y)", new: "from unnest(p_payloads) x)"}))
}

// A day of a delay has 24 hours, even if the session's time zone changes its clocks, and options
// that are not an object fail with the name of the option.
func TestRuleDelaysAreSeconds(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`set timezone = 'Europe/Berlin'`)
		for _, days := range []int{100, 200, 300} { // at least one of them lies in the other half of the year
			s.exec(`select posthaste.send('q', '1', jsonb_build_object('delay', $1::int || ' days'))`, days)
			hours := get[float64](s, `select extract(epoch from max(due_at) - clock_timestamp())::float8 / 3600 from posthaste.entries`)
			if off := hours - float64(24*days); off < -0.5 || off > 0.5 {
				return fmt.Sprintf("%d days are %.1f hours", days, hours)
			}
		}
		for _, options := range []string{`5`, `["key"]`, `"key"`, `null`, `true`} {
			if pg := s.refusal(`select posthaste.send('q', '1', $1::text::jsonb)`, options); pg == nil || pg.Code != "PH400" || pg.ColumnName != "options" {
				return fmt.Sprintf("options %s end with %v", options, pg)
			}
		}
		return ""
	}, without("seconds", patch{file: "send.sql", old: "make_interval(secs => nullif(extract(epoch from (v_given ->> 'delay')::interval), 0)::float8)", new: "(v_given ->> 'delay')::interval"}),
		without("asking for an object", patch{file: "send.sql", old: "jsonb_typeof(v_given) <> 'object' or ", new: ""}))
}

package ledger_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// statements splits a file as psql does, as far as these files need it: at lines that end with a
// semicolon outside of dollar quotes.
func statements(text string) (out []string) {
	var b strings.Builder
	quoted := false
	for line := range strings.Lines(text) {
		b.WriteString(line)
		if strings.Count(line, "$$")%2 == 1 {
			quoted = !quoted
		}
		if !quoted && strings.HasSuffix(strings.TrimSpace(line), ";") {
			out = append(out, b.String())
			b.Reset()
		}
	}
	if strings.TrimSpace(b.String()) != "" {
		out = append(out, b.String())
	}
	return out
}

// contracts returns the files of the contract.
func contracts(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("contract/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no contract: %v", err)
	}
	return files
}

// contract returns the text of a file of the contract.
func contract(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The contract of the SQL interface, as asserts in plain SQL: psql alone can send, receive,
// settle and look up messages, and can check that.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, file := range contracts(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".sql")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := connect(t, testpg.New(t))
			// Twice: rows left by the first run must not matter.
			for range 2 {
				for _, sql := range statements(contract(t, file)) {
					s.exec(sql)
				}
			}
		})
		t.Run(name+"_by_psql", func(t *testing.T) {
			t.Parallel()
			testrun.Nightly(t, "the same statements run on each change, without psql")
			testdb.Run(t, "psql", "-qXAt", "--set", "ON_ERROR_STOP=1", "--dbname", testpg.New(t), "--file", file)
		})
	}
}

// The asserts have an effect: a ledger that breaks the contract fails them.
func TestContractNoticesBrokenPromises(t *testing.T) {
	t.Parallel()
	for _, b := range []struct {
		file  string
		patch patch
	}{
		{"settle", patch{file: "settle_singles.sql", old: "select i, coalesce(a.settled, true)", new: "select i, true"}},
		{"bad_input", patch{file: "check_options.sql", old: "    raise exception using errcode = 'PH400', column = coalesce(nullif(k, ''), 'options'),", new: "    continue; raise exception using errcode = 'PH400', column = coalesce(nullif(k, ''), 'options'),"}},
		{"bad_input", patch{file: "insert_entries.sql", old: "not between 0 and 9e12 or v_now + make_interval(secs => p_delays[n]) >= posthaste.last_time()", new: "not between 0 and 1e308"}},
		{"dead_letters", patch{file: "finish.sql", old: ">= options.most then 'dead'", new: "> options.most then 'dead'"}},
		{"tokens", patch{file: "token_hashes.sql", old: "t.dropped_at is null and (t.expires_at is null or t.expires_at > clock_timestamp())", new: "t.dropped_at is null"}},
		{"tokens", patch{file: "token_hashes.sql", old: "if exists (select from posthaste.issued_tokens)", new: "if exists (select from posthaste.tokens)"}},
		{"tokens", patch{file: "token_hashes.sql", old: "where t.dropped_at is null and (t.", new: "where (t."}},
		{"leases", patch{file: "overdue_places.sql", old: "<= clock_timestamp()", new: "<= clock_timestamp() - interval '1 day'"}},
		{"checkpoints", patch{file: "note_single.sql", old: "if not posthaste.put_note(", new: "if false and not posthaste.put_note("}},
		{"send", patch{file: "insert_entries.sql", old: "when p_send_ats[n] > v_now then p_send_ats[n]", new: "when false then p_send_ats[n]"}},
	} {
		t.Run(b.file, func(t *testing.T) {
			t.Parallel()
			text := contract(t, "contract/"+b.file+".sql")
			found := testrun.Twin(t, text, functionText(t, b.patch.file))
			url := testpg.New(t)
			breakFunctions(t, url, []patch{b.patch})
			s := connect(t, url)
			for _, sql := range statements(text) {
				// P0004: an assert failed; P0002: an expected row was missing.
				switch code := s.code(sql); code {
				case "":
				case "P0004", "P0002":
					found()
					return
				default:
					t.Fatalf("%s ended with %s", sql, code)
				}
			}
			t.Error("no assert failed")
		})
	}
}

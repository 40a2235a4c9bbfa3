package wire

import (
	"regexp"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	ledger "github.com/posthaste-mq/posthaste/sql"
)

func TestHint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		e         posthaste.Error
		http, cli string
	}{
		{posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: "queue 'a.b' does not exist", Hint: "SQL"},
			"create it with PUT /v1/queues/a.b; GET /v1/queues lists all", "create it with: posthaste queue create a.b"},
		{posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: "queue 'a/b' does not exist"}, notAName, notAName},
		{posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: "queue 'a''b' does not exist"}, notAName, notAName},
		{posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: "queue 'a\"b' does not exist"}, notAName, notAName},
		{posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: "queue '..' does not exist"}, notAName, notAName},
		{posthaste.Error{Code: posthaste.CodeNotFound, Field: "name", Message: "schedule 'A' does not exist"}, notAName, "list all with: posthaste schedule ls"},
		{posthaste.Error{Code: posthaste.CodeNotFound, Field: "relays[1].queue", Message: `queue "a" does not exist`},
			"create it with PUT /v1/queues/a; GET /v1/queues lists all", "create it with: posthaste queue create a"},
		{posthaste.Error{Code: posthaste.CodeConflict, Field: "name", Message: "queue 'a' exists with different options"},
			"change options with PATCH /v1/queues/a", "change options with: posthaste queue update a"},
		{posthaste.Error{Code: posthaste.CodeConflict, Field: "name", Message: "exists with different options"},
			"change options with PATCH /v1/queues/NAME", "change options with: posthaste queue update NAME"},
		{posthaste.Error{Code: posthaste.CodeConflict, Field: "name", Message: "token \"a\" already exists", Hint: "a new secret needs a new name"},
			"a new secret needs a new name", "a new secret needs a new name"},
		{posthaste.Error{Code: posthaste.CodeNotFound, Field: "name", Message: "token 'a' does not exist", Hint: "list them"}, "list them", "list all with: posthaste token ls"},
		{posthaste.Error{Code: posthaste.CodeInvalid, Field: "payload", Message: "no", Hint: "send JSON"}, "send JSON", "send JSON"},
	} {
		if http, cli := Hint(&c.e, HTTP), Hint(&c.e, CLI); http != c.http || cli != c.cli {
			t.Errorf("%s %s: %q and %q, want %q and %q", c.e.Code, c.e.Field, http, cli, c.http, c.cli)
		}
	}
}

// Every hint of the functions that speaks SQL has words for the other interfaces, unless
// only SQL can come to it.
func TestHintsForAllThatSpeakSQL(t *testing.T) {
	t.Parallel()
	sqlOnly := map[string]string{
		"give_up.sql":     "is called by SQL alone",
		"option_time.sql": "the interfaces read times themselves",
		"send_many.sql":   "is called by SQL alone",
	}
	raise := regexp.MustCompile(`(?s)raise exception using ([^;]*);`)
	speaks := regexp.MustCompile(`(?s)(posthaste\.|select |view |pg_timezone|pause_queue|send_many|to_jsonb|"all"|expires_at '')`)
	codes := map[string]posthaste.Code{"PH400": posthaste.CodeInvalid, "PH404": posthaste.CodeNotFound, "PH409": posthaste.CodeConflict, "PH501": posthaste.CodeUnsupported, "PH503": posthaste.CodeRefused}
	first := func(in, pattern string) string {
		if found := regexp.MustCompile(pattern).FindStringSubmatch(in); found != nil {
			return found[1]
		}
		return ""
	}
	texts, err := ledger.Functions()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for file, text := range texts {
		for _, raised := range raise.FindAllStringSubmatch(text, -1) {
			_, hint, _ := strings.Cut(raised[1], "hint = ")
			said := ""
			for _, literal := range regexp.MustCompile(`'(?:[^']|'')*'`).FindAllString(hint, -1) {
				said += literal + " "
			}
			if !speaks.MatchString(said) || sqlOnly[file] != "" {
				continue
			}
			seen++
			e := posthaste.Error{Code: codes[first(raised[1], `errcode = '(PH\d+)'`)], Message: first(raised[1], `message = (?:format\()?'((?:[^']|'')*)'`), Hint: "SQL"}
			for _, column := range regexp.MustCompile(`'([a-z_]+)'`).FindAllStringSubmatch(first(raised[1], `column = ([^,]*)`), -1) {
				e.Field = column[1]
				if Hint(&e, CLI) == "SQL" {
					t.Errorf("%s: the hint of %s %s (%s) speaks SQL on the command line", file, e.Code, e.Field, e.Message)
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d hints that speak SQL were found", seen)
	}
}

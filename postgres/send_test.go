package postgres

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// A statement sends at most as many rows and bytes as PostgreSQL accepts at once.
func TestPartsOfASend(t *testing.T) {
	t.Parallel()
	large, small := make([]byte, 20<<20), make([]byte, 10)
	rows := func(bodies ...[]byte) []row {
		out := make([]row, len(bodies))
		for i, b := range bodies {
			out[i] = row{Message: &posthaste.Message{}, body: b}
		}
		return out
	}
	many := make([][]byte, maxRows+5)
	for i := range many {
		many[i] = small
	}
	for name, c := range map[string]struct {
		rows []row
		want int
	}{
		"small":         {rows(small, small), 2},
		"many":          {rows(many...), maxRows},
		"large":         {rows(large, large, large), 1},
		"large at last": {rows(small, large, large), 2},
		"one too large": {rows(make([]byte, maxBytes+1), small), 1},
	} {
		if got := firstPart(c.rows); got != c.want {
			t.Errorf("%s: the first part has %d rows, want %d", name, got, c.want)
		}
	}
}

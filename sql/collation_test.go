package ledger_test

import (
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// An index on text in the order of a language becomes corrupt when the C library or ICU is
// upgraded: stored keys are not found any more, and are stored a second time.
func TestIndexesDoNotDependOnALanguage(t *testing.T) {
	t.Parallel()
	s := connect(t, testpg.New(t))
	if n := get[int](s, `select count(*)::int from pg_index i join pg_class c on c.oid = i.indrelid, unnest(i.indcollation) x (used)
		where c.relnamespace = 'posthaste'::regnamespace and x.used = '"C"'::regcollation`); n < 10 {
		t.Errorf("only %d columns of indexes are text, so this looks at the wrong ones", n)
	}
	for _, column := range list[string](s, `select format('%s of %s', c.relname, i.indexrelid::regclass) from pg_index i join pg_class c on c.oid = i.indrelid, unnest(i.indcollation) x (used)
		where c.relnamespace = 'posthaste'::regnamespace and x.used not in (0, '"C"'::regcollation) order by 1`) {
		t.Errorf("the index %s is not in collation C", column)
	}
	// A column without an index today may be sorted by, or get an index, tomorrow.
	for _, column := range list[string](s, `select format('%s.%s', c.relname, a.attname) from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
		where c.relnamespace = 'posthaste'::regnamespace and c.relkind in ('r', 'p') and c.relname not in ('migrations', 'applied') and a.attcollation not in (0, '"C"'::regcollation) order by 1`) {
		t.Errorf("the column %s is not in collation C", column)
	}
}

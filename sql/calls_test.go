package ledger_test

import (
	"regexp"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	ledger "github.com/posthaste-mq/posthaste/sql"
)

// TestPublicFunctionsHaveOneStyle: parameters of public functions have clean names, because callers
// write them in named notation, and the same in all overloads. No function returns void, on which
// some clients fail.
func TestPublicFunctionsHaveOneStyle(t *testing.T) {
	t.Parallel()
	s := connect(t, testpg.New(t))
	public := publicFunctions(t)
	if len(public) < 30 {
		t.Fatalf("only %d public functions", len(public))
	}
	s.exec(`create view public.parameters as
		select p.oid, p.proname, p.pronargs, p.prorettype, u.n, u.name, p.proargtypes[u.n - 1] as type
		  from pg_proc p left join lateral unnest(p.proargnames, p.proargmodes) with ordinality u (name, mode, n) on u.mode in ('i', 'b') or u.mode is null
		 where p.pronamespace = 'posthaste'::regnamespace`)
	for what, query := range map[string]string{
		"a parameter with a prefix, or without a name": `select distinct proname || ': ' || coalesce(name, '') from public.parameters
			where proname = any ($1) and pronargs > 0 and coalesce(name, '') !~ '^(?!(p|v|in|with|of)_)[a-z_]+$'`,
		"a parameter of type integer or smallint, which a bigint of a client does not fit": `select distinct proname || ': ' || name from public.parameters
			where proname = any ($1) and type in ('int'::regtype, 'smallint'::regtype)`,
		"a void result": `select distinct proname from public.parameters where proname = any ($1) and prorettype = 'void'::regtype`,
		"overloads with different names": `select proname from (
			select distinct proname, oid, array_agg(name order by n) as names from public.parameters where proname = any ($1) group by 1, 2) x
			group by 1 having count(distinct names) > 1`,
	} {
		if found := list[string](s, query, public); len(found) > 0 {
			t.Errorf("%s: %q", what, found)
		}
	}
}

// publicFunctions are the names of the functions of class public in grants.sql.
func publicFunctions(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range publicGrant.FindAllStringSubmatch(grantsText(t), -1) {
		names = append(names, m[1])
	}
	return names
}

var publicGrant = regexp.MustCompile(`\('public', '[a-z_]+', '([a-z_]+)'\)`)

func grantsText(t *testing.T) string {
	t.Helper()
	text, err := ledger.Files.ReadFile("grants.sql")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

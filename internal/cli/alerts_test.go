//go:build unix

package cli_test

import (
	"regexp"
	"testing"

	"gopkg.in/yaml.v3"
)

// comparesWithNone is a metric of which all processes tell the same, compared with 0: of
// nothing at all such an expression says nothing.
var comparesWithNone = regexp.MustCompile(`^(?:max|sum)\((posthaste_\w+)\) == 0\b`)

// Where no process runs that tells of something, Prometheus has no such metric. An alert
// that there is none of it must say so, too; but not where the database is away, of which
// PosthasteStoreDown tells.
func TestAlertsOfNoneFireWhereNobodyTells(t *testing.T) {
	t.Parallel()
	var alerts struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	readFile(t, "../../docs/monitoring/alerts.yaml", yaml.Unmarshal, &alerts)
	seen := false
	for _, group := range alerts.Groups {
		for _, rule := range group.Rules {
			m := comparesWithNone.FindStringSubmatch(rule.Expr)
			if m == nil {
				continue
			}
			seen = seen || rule.Alert == "PosthasteNoWorkers"
			if want := m[0] + " or (absent(" + m[1] + ") unless on () max(posthaste_store_up) == 0)"; rule.Expr != want {
				t.Errorf("%s is %q, want %q", rule.Alert, rule.Expr, want)
			}
		}
	}
	if !seen {
		t.Error("PosthasteNoWorkers does not compare workers with 0 any more: mend this test")
	}
}

//go:build unix

package cli_test

import (
	"regexp"
	"testing"

	"gopkg.in/yaml.v3"
)

// comparesWithNone matches a comparison with 0 of a metric that all processes export alike.
// Without the metric, such an expression has no result.
var comparesWithNone = regexp.MustCompile(`^(?:max|sum)\((posthaste_\w+)\) == 0\b`)

// If no process exports a metric, an alert on its value 0 must fire too, unless the database
// is unavailable, which PosthasteStoreDown covers.
func TestAlertsOfNoneFireWhereNobodyTells(t *testing.T) {
	t.Parallel()
	var alerts struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	readFile(t, "../../docs/production/monitoring/alerts.yaml", yaml.Unmarshal, &alerts)
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
		t.Error("PosthasteNoWorkers no longer compares workers with 0; fix this test")
	}
}

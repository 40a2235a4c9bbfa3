package cli

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/posthastetest"
)

// troubled is a store that answers some calls too late, or not at all.
type troubled struct {
	posthaste.Store
	slow, away bool
}

func (e troubled) Ready(ctx context.Context) error {
	if e.away {
		<-ctx.Done()
		return ctx.Err()
	}
	return e.Store.Ready(ctx)
}

func (e troubled) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	if e.slow {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return e.Store.Queues(ctx, names...)
}

// The metrics report a slow store as slow, not as down.
func TestSlowStoreIsNotDown(t *testing.T) {
	for name, c := range map[string]struct {
		slow, away bool
		up, isSlow float64
	}{"quick": {up: 1}, "slow": {slow: true, up: 1, isSlow: 1}, "away": {away: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry := prometheus.NewRegistry()
				registry.MustRegister(&storeMetrics{troubled{posthastetest.Memory(), c.slow, c.away}})
				all, err := registry.Gather()
				if err != nil {
					t.Fatal(err)
				}
				got := map[string]float64{}
				for _, family := range all {
					got[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
				}
				if got["posthaste_store_up"] != c.up || got["posthaste_store_slow"] != c.isSlow {
					t.Errorf("told are %v", got)
				}
				if _, told := got["posthaste_workers"]; told != !c.away {
					t.Errorf("told are %v", got)
				}
			})
		})
	}
}

package posthastetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/posthastetest"
)

// The handler under test weighs an order before it ships.
func weigh(ctx context.Context, d posthaste.Delivery[order]) error {
	if d.Payload.Amount > 100 {
		return posthaste.RetryAfter(errors.New("too heavy for today's van"), 24*time.Hour)
	}
	return errors.Join(d.Progress(ctx, 1, "weighed"), d.SetResult(d.Payload.Amount))
}

func TestWeigh(t *testing.T) {
	light := posthastetest.Work(t, weigh, order{Number: 7, Amount: 2})
	if light.Outcome != posthaste.OutcomeDone || string(light.Result) != "2" || light.ProgressText != "weighed" {
		t.Errorf("the light order ended as %+v", light)
	}
	heavy := posthastetest.Work(t, weigh, order{Number: 8, Amount: 200})
	if heavy.Outcome != posthaste.OutcomeRetried || heavy.Wait != 24*time.Hour {
		t.Errorf("the heavy order ended as %+v", heavy)
	}
}

package dashboard_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// lesser is a store that can do no more than its capabilities say.
type lesser struct {
	*stocked
	can posthaste.Capabilities
}

func (l *lesser) Capabilities() posthaste.Capabilities { return l.can }

var errLacking = &posthaste.Error{Code: posthaste.CodeUnsupported, Message: "this store cannot do that"}

func (l *lesser) Messages(ctx context.Context, f posthaste.MessageFilter) (page posthaste.Page[posthaste.MessageInfo], err error) {
	if f.Kind+f.Key+f.Reference+f.Term != "" || !f.CreatedFrom.IsZero() {
		return page, errLacking
	}
	return l.stocked.Messages(ctx, f)
}

func (l *lesser) DeadLetters(ctx context.Context, f posthaste.DeadLetterFilter) (page posthaste.Page[posthaste.DeadLetter], err error) {
	if f.Kind+f.Key+f.Reference+f.Term+f.Error != "" || !f.DiedFrom.IsZero() || !f.DiedBefore.IsZero() {
		return page, errLacking
	}
	return l.stocked.DeadLetters(ctx, f)
}

func (l *lesser) UpdateMessage(context.Context, posthaste.MessageID, posthaste.MessageUpdate) (u posthaste.Updated, err error) {
	return u, errLacking
}

func (l *lesser) Pause(ctx context.Context, what posthaste.Pausable, o posthaste.PauseOptions) error {
	if _, queue := what.(posthaste.OfQueue); !queue {
		return errLacking
	}
	return l.stocked.Pause(ctx, what, o)
}

func (l *lesser) HandlerStats(context.Context, posthaste.StatsQuery) ([]posthaste.HandlerStats, error) {
	return nil, errLacking
}

func (l *lesser) Failures(context.Context, posthaste.FailureQuery) ([]posthaste.Failure, error) {
	return nil, errLacking
}

func (l *lesser) Samples(context.Context, posthaste.SampleQuery) ([]posthaste.Sample, error) {
	return nil, errLacking
}

// On a store that cannot search, change messages, pause kinds and keys, or keep charts, no page
// fails, and none offers these.
func TestPagesOfALesserStore(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	can := stock.Capabilities()
	can.Search, can.Charts, can.Limits, can.StopOnDead, can.PauseKinds, can.Updates, can.Unique, can.Totals = false, false, false, false, false, false, false, false
	site := newSite(t, &lesser{stock, can})
	v := site.viewer(posthaste.ScopeAdmin)
	crawl(t, v, "")
	for path, absent := range map[string][]string{
		"/":                                 {`name="kind"`, "/failing", `href="/emails"`, "Sent/s", "Empty in", "Id, reference"},
		"/messages":                         {`name="kind"`, `name="key"`, `name="reference"`, `name="term"`, `name="from"`, "Cancel all", "Cancel selected"},
		"/dead-letters":                     {`name="kind"`, `name="error"`, `name="died_from"`, "kind=", "error="},
		"/queues":                           {"Last hour", "Sent/s", "Empty in"},
		"/queues/orders":                    {"Pause key", "Paused keys", "Pause kind", "Paused kinds", "Traffic", "Withdrawn", "Empty in"},
		"/queues/halted":                    {"Pause kind", "Paused kinds"},
		"/queues/halted/options":            {`name="concurrency"`, `name="on_dead"`},
		"/messages/" + stock.ready.String(): {"/edit"},
		"/relays":                           {"Done/s", "Retried"},
		"/search?q=nothing":                 {"reference", "key"},
	} {
		page := v.get(path).want(200)
		for _, text := range absent {
			if strings.Contains(page.body, text) {
				t.Errorf("%s has %q", path, text)
			}
		}
	}
	v.get("/queues/halted").want(200, "Newest messages")
	v.get("/queues/orders").want(200, stock.ready.String())
	v.get("/dead-letters").want(200, someError, "Replay all that match")
	for _, path := range []string{"/queues/halted/kinds/pause?kind=a", "/queues/orders/keys/pause?key=a", "/messages/cancel?queue=orders", "/messages/" + stock.ready.String() + "/edit"} {
		if page := v.get(path); page.status == 200 || page.status == 500 {
			t.Errorf("%s: status %d", path, page.status)
		}
	}
	if _, err := site.engine.UpdateMessage(t.Context(), stock.ready, posthaste.MessageUpdate{}); !errors.Is(err, errLacking) {
		t.Errorf("the store changes a message: %v", err)
	}
}

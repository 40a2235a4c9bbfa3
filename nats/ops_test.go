package nats

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// two opens two engines on one server, with queue "jobs".
func two(t *testing.T) (ctx context.Context, a, b *Engine) {
	t.Helper()
	url := startServer(t)
	a, b = openEngine(t, url), openEngine(t, url)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	must(t, a.CreateQueue(ctx, "jobs", posthaste.QueueOptions{}))
	return posthaste.WithActor(ctx, "ada"), a, b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, what string, err error, want posthaste.Code) {
	t.Helper()
	if posthaste.CodeOf(err) != want {
		t.Errorf("%s: error %v, want code %q", what, err, want)
	}
}

// until waits for a condition.
func until(t *testing.T, ctx context.Context, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		if !sleepFor(ctx, 5*time.Millisecond) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// ahead moves the clocks of engines.
func ahead(by time.Duration, engines ...*Engine) {
	for _, e := range engines {
		e.clock.offset.Add(int64(by))
	}
}

// entries returns the messages of queue "jobs" with priority 0, as they are stored.
func entries(t *testing.T, ctx context.Context, e *Engine) (all []*meta) {
	t.Helper()
	q, err := e.queue(ctx, "jobs")
	must(t, err)
	for from := uint64(1); ; {
		m, err := e.leaderGet(ctx, q.stream, map[string]any{"seq": from, "next_by_subj": q.subjects.under("q", "0")})
		must(t, err)
		if m == nil {
			return all
		}
		is, _, err := decode(m.Header, m.Data)
		must(t, err)
		all, from = append(all, is), m.Sequence+1
	}
}

// recorded by an actor since the begin, oldest first, as action, queue and details.
func recordedBy(t *testing.T, ctx context.Context, e *Engine, by string) (all []string) {
	t.Helper()
	actions, err := e.Actions(ctx, posthaste.ActionFilter{Limit: 1000})
	must(t, err)
	for _, a := range actions {
		if a.By == by {
			all = append(all, strings.TrimSpace(a.Action+" "+a.Queue+string(a.Details)))
		}
	}
	slices.Reverse(all)
	return all
}

func TestActionsArePaged(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	for i := range 25 {
		// Between actions there are outcomes of messages.
		for range i {
			_, err := a.js.Publish(ctx, a.prefix+".log.out."+strconv.Itoa(i), nil)
			must(t, err)
		}
		queue, message := "", posthaste.MessageID(0)
		if i%2 == 0 {
			queue = "a.b"
		}
		if i%5 == 0 {
			message = posthaste.MessageID(i + 1)
		}
		must(t, a.record(ctx, "act", queue, message, map[string]int{"n": i}))
	}
	for _, c := range []struct {
		filter posthaste.ActionFilter
		want   func(i int) bool
	}{
		{posthaste.ActionFilter{Limit: 4}, func(int) bool { return true }},
		{posthaste.ActionFilter{Limit: 4, Queue: "a.b"}, func(i int) bool { return i%2 == 0 }},
		{posthaste.ActionFilter{Limit: 1, MessageID: 11}, func(i int) bool { return i == 10 }},
		{posthaste.ActionFilter{Limit: 4, Queue: "none"}, func(int) bool { return false }},
		{posthaste.ActionFilter{}, func(int) bool { return true }},
	} {
		var got, want []string
		for i := 24; i >= 0; i-- {
			if c.want(i) {
				want = append(want, `{"n":`+strconv.Itoa(i)+"}")
			}
		}
		for pages := 0; ; pages++ {
			page, err := b.Actions(ctx, c.filter)
			must(t, err)
			for _, x := range page {
				if x.By == "ada" && x.Action == "act" {
					got = append(got, string(x.Details))
				}
				if c.filter.Before != 0 && x.ID >= c.filter.Before || time.Since(x.At).Abs() > time.Minute {
					t.Errorf("the page before %d has %+v", c.filter.Before, x)
				}
				c.filter.Before = x.ID
			}
			if len(page) < 4 && c.filter.Limit != 1 || len(page) == 0 || pages > 30 {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("filter %+v lists %q, want %q", c.filter, got, want)
		}
	}
	_, err := a.Actions(ctx, posthaste.ActionFilter{Limit: 1001})
	wantCode(t, "too many", err, posthaste.CodeInvalid)
}

func TestTokensAgree(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	tokensAgree(t, ctx, a, b)
}

func tokensAgree(t *testing.T, ctx context.Context, a, b *Engine) {
	send := []posthaste.Scope{posthaste.ScopeSend}
	if _, ever, err := b.TokensInForce(ctx); err != nil || ever {
		t.Errorf("before any was made: ever %v, %v", ever, err)
	}
	for _, name := range []string{"shop", "a..b.", "short"} {
		token := posthaste.Token{Name: name, Scopes: send}
		if name == "short" {
			token.ExpiresIn = time.Hour
		}
		_, err := a.CreateToken(ctx, token)
		must(t, err)
		_, err = b.CreateToken(ctx, token)
		wantCode(t, "the same name again", err, posthaste.CodeConflict)
	}
	names := func(e *Engine, used ...string) (names []string) {
		t.Helper()
		all, ever, err := e.TokensInForce(ctx, used...)
		must(t, err)
		if !ever {
			t.Error("there was never a token")
		}
		for _, x := range all {
			names = append(names, x.Name)
		}
		return names
	}
	if got := names(b, "shop", "unknown"); !slices.Equal(got, []string{"a..b.", "shop", "short"}) {
		t.Errorf("in force are %q", got)
	}
	all, err := a.Tokens(ctx)
	must(t, err)
	if all[0].LastUsedAt.IsZero() != true || all[1].LastUsedAt.IsZero() || all[1].CreatedBy != "ada" {
		t.Errorf("after one was used: %+v", all)
	}
	ahead(2*time.Hour, b)
	if got := names(b); !slices.Equal(got, []string{"a..b.", "shop"}) {
		t.Errorf("after one has expired: %q", got)
	}
	must(t, a.RevokeToken(ctx, "shop"))
	wantCode(t, "revoking it again", b.RevokeToken(ctx, "shop"), posthaste.CodeNotFound)
	if got := names(b); !slices.Equal(got, []string{"a..b."}) {
		t.Errorf("after one was revoked: %q", got)
	}
	_, err = b.CreateToken(ctx, posthaste.Token{Name: "shop", Scopes: send})
	must(t, err)
	for _, name := range []string{"shop", "a..b.", "short"} {
		must(t, b.RevokeToken(ctx, name))
	}
	if got := names(a); len(got) != 0 {
		t.Errorf("after all were revoked: %q", got)
	}
	_, err = a.CreateToken(ctx, posthaste.Token{Name: "late", Scopes: send, ExpiresAt: time.Now().Add(-time.Minute)})
	wantCode(t, "one that has expired", err, posthaste.CodeInvalid)
	if got := recordedBy(t, ctx, a, "ada"); !slices.Contains(got, `token_drop {"token":"a..b."}`) || len(got) != 8 {
		t.Errorf("recorded are %q", got)
	}
}

func TestChartsAreUnsupported(t *testing.T) {
	t.Parallel()
	ctx, a, _ := two(t)
	_, err := a.HandlerStats(ctx, posthaste.StatsQuery{})
	wantCode(t, "stats", err, posthaste.CodeUnsupported)
	_, err = a.Failures(ctx, posthaste.FailureQuery{})
	wantCode(t, "failures", err, posthaste.CodeUnsupported)
	_, err = a.Samples(ctx, posthaste.SampleQuery{})
	wantCode(t, "samples", err, posthaste.CodeUnsupported)
}

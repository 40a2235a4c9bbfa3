package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func (a *api) makeToken(t posthaste.Token) (secret string) {
	a.t.Helper()
	secret, err := a.engine.CreateToken(posthaste.WithActor(a.t.Context(), "test"), t)
	if err != nil {
		a.t.Fatal(err)
	}
	return secret
}

// as is the API called with another token.
func (a *api) as(token string) *api {
	other := *a
	other.token = token
	return &other
}

// Tokens of the store are asked for from the first one on, also after the last
// was dropped, and each change is known without a restart.
func TestStoredTokensOpenAndCloseTheDoor(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		a := newAPI(t)
		a.queue("orders")
		status := func(secret, method, path, body string) int { return a.as(secret).call(method, path, body).status }
		if got := status("", "GET", "/v1/queues", ""); got != 200 {
			t.Fatalf("before there was a token: %d", got)
		}
		secret := a.makeToken(posthaste.Token{Name: "shop", Scopes: []Scope{ScopeSend}})
		eventually(t, "tokens are asked for", func() bool { return status("", "GET", "/v1/queues", "") == 401 })
		eventually(t, "the token is known", func() bool { return status(secret, "POST", "/v1/queues/orders/messages", `{"payload":1}`) == 201 })
		a.as(secret).call("GET", "/v1/queues", "").wantProblem(t, 403, posthaste.CodeDenied, "Authorization")

		second := a.makeToken(posthaste.Token{Name: "shop-2", Scopes: []Scope{ScopeSend}})
		eventually(t, "the second token is known", func() bool { return status(second, "POST", "/v1/queues/orders/messages", `{"payload":1}`) == 201 })
		for _, name := range []string{"shop", "shop-2"} {
			if err := a.engine.RevokeToken(posthaste.WithActor(t.Context(), "test"), name); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the dropped token is refused", func() bool { return status(secret, "POST", "/v1/queues/orders/messages", `{"payload":1}`) == 401 })
		if got := status("", "GET", "/v1/queues", ""); got != 401 {
			t.Errorf("after the last token was dropped, without one: %d", got)
		}
		if strings.Contains(a.log.String(), secret) {
			t.Error("the log has a secret")
		}
	})
}

// A server that must not be open is closed while there is no token.
func TestRequireTokenWithoutAny(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		a := newAPI(t, func(c *Config, _ *hooked) { c.RequireToken = true })
		a.call("GET", "/v1/queues", "").wantProblem(t, 401, posthaste.CodeDenied, "Authorization")
		a.call("GET", "/metrics", "").wantProblem(t, 401, posthaste.CodeDenied, "Authorization")
		a.call("GET", "/healthz", "").want(t, 200)
		secret := a.makeToken(posthaste.Token{Name: "ops", Scopes: []Scope{ScopeAdmin}})
		eventually(t, "the token is known", func() bool { return a.as(secret).call("GET", "/v1/queues", "").status == 200 })
	})
}

// A token for one queue reaches no other, on whatever way.
func TestTokensLimitedToQueues(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		a := newAPI(t, withTokens(t))
		admin := a.as("admin-secret")
		for _, q := range []string{"mine", "theirs", "emails"} {
			a.queue(q)
			admin.call("POST", "/v1/queues/"+q+"/messages", `{"payload":1}`).want(t, 201)
		}
		limited := a.as(a.makeToken(posthaste.Token{Name: "limited", Scopes: []Scope{ScopeSend, ScopeReceive}, Queues: []string{"mine"}}))
		eventually(t, "the token is known", func() bool { return limited.call("POST", "/v1/queues/mine/messages", `{"payload":1}`).status == 201 })
		for path, body := range map[string]string{"/v1/queues/theirs/messages": `{}`, "/v1/queues/theirs/receive": "", "/v1/emails": someEmail, "/v1/queues/theirs%2F..%2Fmine/receive": ""} {
			limited.call("POST", path, body).wantProblem(t, 403, posthaste.CodeDenied, "queue")
		}
		limited.call("GET", "/metrics", "").wantProblem(t, 403, posthaste.CodeDenied, "queue")

		var mine, theirs []wire.Delivery
		limited.call("POST", "/v1/queues/mine/receive", `{"max":10}`).want(t, 200).items(t, &mine)
		admin.call("POST", "/v1/queues/theirs/receive", "").want(t, 200).items(t, &theirs)
		both := `{"deliveries":[{"id":"` + mine[0].ID.String() + `"%},{"id":"` + theirs[0].ID.String() + `"%}]}`
		for action, more := range map[string]string{"ack": "", "fail": `,"error":"x"`, "release": "", "extend": `,"lease":"1m"`} {
			limited.call("POST", "/v1/deliveries/"+action, strings.ReplaceAll(both, "%", more)).wantProblem(t, 403, posthaste.CodeDenied, "queue")
		}
		limited.call("POST", "/v1/deliveries/ack", `{"deliveries":[{"id":"`+mine[0].ID.String()+`"}]}`).want(t, 200)
		admin.call("POST", "/v1/deliveries/ack", `{"deliveries":[{"id":"`+theirs[0].ID.String()+`"}]}`).want(t, 200) // it is still unsettled

		mailer := a.as(a.makeToken(posthaste.Token{Name: "mailer", Scopes: []Scope{ScopeSend}, Queues: []string{"emails"}}))
		eventually(t, "the token is known", func() bool { return mailer.call("GET", "/metrics", "").status == 403 })
		mailer.call("POST", "/v1/emails", someEmail).want(t, 201)
	})
}

// settlingSeen keeps what tracing is told of settlements.
type settlingSeen struct {
	posthaste.Tracing
	ids []posthaste.DeliveryID
}

func (s *settlingSeen) Sending(ctx context.Context, m []posthaste.Message) (context.Context, []posthaste.Message, func([]posthaste.Sent, error)) {
	return ctx, m, func([]posthaste.Sent, error) {}
}

func (s *settlingSeen) Settling(_ context.Context, _ map[string]string, settlements []posthaste.Settlement) func([]posthaste.SettleResult, error) {
	for _, one := range settlements {
		s.ids = append(s.ids, one.Delivery)
	}
	return func([]posthaste.SettleResult, error) {}
}

// A delivery that is claimed between the check of its queue and its settlement is out of a
// limited token's reach. The answer is the same as for a delivery that the caller no longer
// holds.
func TestLimitedTokensAndWhatIsClaimedMeanwhile(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		seen := &settlingSeen{}
		var passed []posthaste.DeliveryID
		a := newAPI(t, withTokens(t), func(c *Config, h *hooked) {
			c.Tracing = seen
			h.of = func(ctx context.Context, ids ...posthaste.DeliveryID) ([]string, error) {
				queues, err := h.Store.DeliveryQueues(ctx, ids...)
				for i := range queues {
					if queues[i] == "theirs" {
						queues[i] = "" // it is claimed only after this look
					}
				}
				return queues, err
			}
			h.settle = func(ctx context.Context, settlements []posthaste.Settlement) ([]posthaste.SettleResult, error) {
				for _, one := range settlements {
					passed = append(passed, one.Delivery)
				}
				return h.Store.Settle(ctx, settlements)
			}
			h.extend = func(ctx context.Context, req posthaste.ExtendRequest) ([]posthaste.SettleResult, error) {
				if len(req.Deliveries) == 0 {
					t.Error("the engine is called to extend nothing")
				}
				passed = append(passed, req.Deliveries...)
				return h.Store.Extend(ctx, req)
			}
		})
		admin := a.as("admin-secret")
		receive := func(queue string) posthaste.DeliveryID {
			var got []wire.Delivery
			admin.call("POST", "/v1/queues/"+queue+"/messages", `{"payload":1}`).want(t, 201)
			admin.call("POST", "/v1/queues/"+queue+"/receive", "").want(t, 200).items(t, &got)
			return got[0].ID
		}
		a.queue("mine")
		a.queue("theirs")
		limited := a.as(a.makeToken(posthaste.Token{Name: "limited", Scopes: []Scope{ScopeReceive}, Queues: []string{"mine"}}))
		eventually(t, "the token is known", func() bool { return limited.call("POST", "/v1/queues/mine/receive", "").status == 200 })
		for action, more := range map[string]string{"ack": "", "fail": `,"error":"x"`, "release": "", "extend": `,"lease":"1m"`} {
			mine, theirs := receive("mine"), receive("theirs")
			passed, seen.ids = nil, nil
			of := func(id posthaste.DeliveryID) string { return `{"id":"` + id.String() + `"` + more + `}` }
			p := limited.call("POST", "/v1/deliveries/"+action, `{"deliveries":[`+of(theirs)+`,`+of(mine)+`]}`).wantProblem(t, 409, posthaste.CodeConflict, "deliveries")
			if d := p.Deliveries; !slices.Equal(p.IDs, []string{theirs.String()}) || len(d) != 2 || d[0] != (wire.Settled{ID: theirs}) || d[1].ID != mine || !d[1].Settled {
				t.Errorf("%s: %+v", action, p)
			}
			p = limited.call("POST", "/v1/deliveries/"+action, `{"deliveries":[`+of(theirs)+`]}`).wantProblem(t, 409, posthaste.CodeConflict, "deliveries")
			if len(p.Deliveries) != 1 || p.Deliveries[0] != (wire.Settled{ID: theirs}) {
				t.Errorf("%s of theirs alone: %+v", action, p)
			}
			if !slices.Equal(passed, []posthaste.DeliveryID{mine}) {
				t.Errorf("%s: the engine got %v, where mine is %s", action, passed, mine)
			}
			if action != "extend" && !slices.Equal(seen.ids, passed) {
				t.Errorf("%s: tracing saw %v, and the engine %v", action, seen.ids, passed)
			}
			admin.call("POST", "/v1/deliveries/ack", `{"deliveries":[{"id":"`+theirs.String()+`"}]}`).want(t, 200) // it is still unsettled
		}
	})
}

// Routes that need not an admin and have no queue in their path are closed to
// limited tokens unless they are known to look themselves.
func TestLimitedTokensAndEveryRoute(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	token := &posthaste.Token{Name: "limited", Scopes: []Scope{ScopeSend, ScopeReceive}, Queues: []string{"mine"}}
	known := 0
	for _, r := range a.server.routes() {
		pattern := r.method + " " + r.path
		if r.scope == "" || r.scope == ScopeAdmin {
			continue
		}
		for queue, allowed := range map[string]bool{"mine": true, "theirs": false, "": r.queues} {
			if strings.Contains(r.path, "{queue}") != (queue != "") {
				continue
			}
			known++
			request := a.request(t.Context(), r.method, "/", "")
			request.SetPathValue("queue", queue)
			if err := allowPath(token, request, r); (err == nil) != allowed {
				t.Errorf("%s with queue %q: %v", pattern, queue, err)
			}
		}
	}
	if known < 9 {
		t.Errorf("only %d cases", known)
	}
}

// A caller that waits for messages with a token that is revoked meanwhile gets none.
func TestWaitingEndsWithTheToken(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		a := newAPI(t, withTokens(t))
		a.queue("orders")
		secret := a.makeToken(posthaste.Token{Name: "reader", Scopes: []Scope{ScopeReceive}})
		waits := make(chan reply, 1)
		go func() {
			got, err := a.as(secret).try(t.Context(), "POST", "/v1/queues/orders/receive", `{"wait":"5m"}`)
			if err != nil {
				t.Error(err)
			}
			waits <- got
		}()
		eventually(t, "it waits", func() bool { return a.server.gatherer.tried("orders") == 1 })
		if err := a.engine.RevokeToken(posthaste.WithActor(t.Context(), "test"), "reader"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the drop is known", func() bool { return a.as(secret).call("GET", "/metrics", "").status == 401 })
		a.as("send-secret").call("POST", "/v1/queues/orders/messages", `{"payload":1}`).want(t, 201)
		got := <-waits
		got.want(t, 401)
		var again []wire.Delivery
		a.as("receive-secret").call("POST", "/v1/queues/orders/receive", `{"wait":"1m"}`).want(t, 200).items(t, &again)
		if len(again) != 1 {
			t.Errorf("the message it was not given: %d deliveries", len(again))
		}
	})
}

// tokenAdmin is the rest of the interface, which is not called.
type tokenAdmin interface {
	CreateToken(context.Context, posthaste.Token) (string, error)
	RevokeToken(context.Context, string) error
	Tokens(context.Context) ([]posthaste.Token, error)
	DeliveryQueues(context.Context, ...posthaste.DeliveryID) ([]string, error)
}

// tokenStore is a store of tokens in a test's own time.
type tokenStore struct {
	tokenAdmin
	asked  atomic.Int64
	answer func(used []string) ([]posthaste.Token, bool, error)
}

func (s *tokenStore) TokensInForce(_ context.Context, used ...string) ([]posthaste.Token, bool, error) {
	s.asked.Add(1)
	time.Sleep(time.Millisecond) // a round trip
	return s.answer(used)
}

func tokenOf(secret string) posthaste.Token {
	return posthaste.Token{Name: secret, Hash: sha256.Sum256([]byte(secret)), Scopes: []Scope{ScopeSend}}
}

// At load the store is asked once a second for all requests, wrong secrets make
// that four times, and idleness none.
func TestTokensAreNotLookedUpPerRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var used []string
		store := &tokenStore{answer: func(u []string) ([]posthaste.Token, bool, error) {
			used = append(used, u...)
			return []posthaste.Token{tokenOf("good")}, true, nil
		}}
		known := newTokens(store, nil, false)
		run := func(secret string, good bool) int64 {
			before := store.asked.Load()
			for range 10_000 { // a thousand a second for ten seconds
				token, asked, err := known.find(t.Context(), secret, false)
				if err != nil || !asked || (token != nil) != good {
					t.Fatalf("%q: %v, asked for %v, %v", secret, token, asked, err)
				}
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
			return store.asked.Load() - before
		}
		if n := run("good", true); n < 8 || n > 11 {
			t.Errorf("the store was asked %d times in 10 s", n)
		}
		if n := run("bad", false); n < 20 || n > 42 {
			t.Errorf("with wrong secrets the store was asked %d times in 10 s", n)
		}
		idle := store.asked.Load()
		time.Sleep(time.Hour)
		if n := store.asked.Load() - idle; n != 0 {
			t.Errorf("idle, the store was asked %d times", n)
		}
		if len(used) == 0 || used[0] != "good" || len(used) > 12 {
			t.Errorf("used: %d names", len(used))
		}
	})
}

// A change is known within a second at load and five at most, and a new token at
// once; a store that is away is told, but for /metrics.
func TestTokenListsAreNeverOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inForce, fault := []posthaste.Token{tokenOf("first")}, error(nil)
		store := &tokenStore{answer: func([]string) ([]posthaste.Token, bool, error) { return inForce, true, fault }}
		known := newTokens(store, nil, false)
		find := func(secret string, stale bool) (bool, error) {
			token, _, err := known.find(t.Context(), secret, stale)
			return token != nil, err
		}
		want := func(what, secret string, good bool) {
			t.Helper()
			if got, err := find(secret, false); got != good || err != nil {
				t.Errorf("%s: %v, %v", what, got, err)
			}
		}
		want("known", "first", true)
		inForce = append(inForce, tokenOf("second"))
		time.Sleep(keepForStrangers)
		want("a new one", "second", true)
		inForce = inForce[1:]
		dropped := time.Now()
		for range 2000 {
			if good, _ := find("first", false); !good {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(dropped); took > keepFresh+100*time.Millisecond {
			t.Errorf("at load a dropped token was good for %s", took)
		}
		inForce = nil
		time.Sleep(keepAtMost)
		want("dropped while idle", "second", false)

		inForce = []posthaste.Token{tokenOf("third")}
		time.Sleep(time.Second)
		want("before the store went away", "third", true)
		fault = &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "away"}
		time.Sleep(keepAtMost - time.Second)
		want("within the bound", "third", true)
		time.Sleep(2 * time.Second)
		if _, err := find("third", false); posthaste.CodeOf(err) != posthaste.CodeUnavailable {
			t.Errorf("past the bound: %v", err)
		}
		if good, err := find("third", true); !good || err != nil {
			t.Errorf("past the bound, where an old list will do: %v, %v", good, err)
		}
		asked := store.asked.Load()
		for range 100 {
			_, _ = find("third", false)
		}
		if n := store.asked.Load() - asked; n > 1 {
			t.Errorf("a store that is away was asked %d times by a hundred requests", n)
		}
		fault = &posthaste.Error{Code: posthaste.CodeDenied, Message: "permission denied"}
		time.Sleep(time.Second)
		if _, err := find("third", false); posthaste.CodeOf(err) != posthaste.CodeUnavailable || !strings.Contains(err.Error(), "posthaste_admin") {
			t.Errorf("without the right to read them: %v", err)
		}
		fault = errors.New("dial tcp: password=geheim")
		time.Sleep(time.Second)
		if _, err := find("third", false); posthaste.CodeOf(err) != posthaste.CodeUnavailable || strings.Contains(err.Error(), "geheim") {
			t.Errorf("an error of the inside: %v", err)
		}
		fault = nil
		time.Sleep(time.Second)
		want("the store is back", "third", true)
	})
}

// A standby takes no times of use, and lets callers in all the same.
func TestTokensOnAStandby(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &tokenStore{answer: func(used []string) ([]posthaste.Token, bool, error) {
			if len(used) > 0 {
				return nil, false, &posthaste.Error{Code: posthaste.CodeReadOnly, Message: "read only"}
			}
			return []posthaste.Token{tokenOf("good")}, true, nil
		}}
		known := newTokens(store, nil, false)
		known.used["good"] = true
		if token, _, err := known.find(t.Context(), "good", false); token == nil || err != nil {
			t.Fatal(token, err)
		}
	})
}

// While its store is away since the start, a server on loopback shows its
// metrics and nothing else.
func TestMetricsWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	away := func(c *Config, h *hooked) {
		h.inForce = func(context.Context, ...string) ([]posthaste.Token, bool, error) {
			return nil, false, &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "away"}
		}
	}
	a := newAPI(t, away)
	a.call("GET", "/metrics", "").want(t, 200)
	a.call("GET", "/v1/queues", "").wantProblem(t, 503, posthaste.CodeUnavailable, "")
	b := newAPI(t, away, func(c *Config, _ *hooked) { c.RequireToken = true })
	b.call("GET", "/metrics", "").want(t, 401)
	b.as("some").call("GET", "/metrics", "").want(t, 503)
}

func FuzzBearer(f *testing.F) {
	for _, seed := range []string{"", "Bearer abc", "bearer  abc ", "Basic abc", "Bearer", "Bearer a b", "Bearer \x00", "Bearer \"x\"", "BEARER\tabc", " Bearer abc", "Bearer ümlaut"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		secret, fault := bearer([]string{header})
		if (fault == nil) != (secret != "") {
			t.Fatalf("%q: %q and %v", header, secret, fault)
		}
		if _, err := bearer([]string{header, header}); err == nil {
			t.Fatal("two headers pass")
		}
		if fault == nil {
			if !isSecret(secret) || !strings.HasSuffix(strings.TrimRight(header, " "), secret) || !strings.EqualFold(header[:7], "bearer ") {
				t.Fatalf("%q: %q", header, secret)
			}
			if again, err := bearer([]string{"Bearer " + secret}); again != secret || err != nil {
				t.Fatalf("%q becomes %q, %v", secret, again, err)
			}
			return
		}
		var e *httpError
		if !errors.As(fault, &e) || e.status != http.StatusUnauthorized || !strings.HasPrefix(e.challenge, "Bearer realm=") || posthaste.CodeOf(fault) != posthaste.CodeDenied {
			t.Fatalf("not clear: %#v", fault)
		}
		if len(header) > 30 && (strings.Contains(fault.Error(), header) || strings.Contains(e.challenge, header)) {
			t.Fatal("the error repeats the header")
		}
	})
}

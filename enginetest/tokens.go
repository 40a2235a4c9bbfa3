package enginetest

import (
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var tokens = []test{
	{name: "Tokens", run: tokenLife, needs: features{Tokens: true}},
	{name: "TokensRefused", run: tokensRefused, needs: features{Tokens: true}},
	{name: "TokensExpire", run: tokensExpire, needs: features{Tokens: true}},
	{name: "DeliveryQueues", run: deliveryQueues},
}

// inForce returns the valid tokens by name.
func (s *suite) inForce(used ...string) (map[string]posthaste.Token, bool) {
	s.Helper()
	tokens, ever, err := s.engine.TokensInForce(s.ctx, used...)
	s.must(err)
	found := map[string]posthaste.Token{}
	for _, t := range tokens {
		found[t.Name] = t
	}
	return found, ever
}

func tokenLife(s *suite) {
	if found, ever := s.inForce(); len(found) != 0 || ever {
		s.Fatalf("before any was made: %v, ever %v", found, ever)
	}
	want := posthaste.Token{Name: "shop", Scopes: []posthaste.Scope{posthaste.ScopeReceive, posthaste.ScopeSend}, Queues: []string{"emails", "orders"}}
	secret, err := s.engine.CreateToken(posthaste.WithActor(s.ctx, "ada"), want)
	s.must(err)
	if len(secret) < 32 {
		s.Fatalf("a secret of %d characters", len(secret))
	}
	other, err := s.engine.CreateToken(posthaste.WithActor(s.ctx, "ada"), posthaste.Token{Name: "ops", Scopes: []posthaste.Scope{posthaste.ScopeAdmin}})
	s.must(err)
	if other == secret {
		s.Fatal("the same secret twice")
	}
	found, ever := s.inForce()
	got := found["shop"]
	if len(found) != 2 || !ever || got.Hash != sha256.Sum256([]byte(secret)) || found["ops"].Hash != sha256.Sum256([]byte(other)) ||
		!slices.Equal(got.Scopes, want.Scopes) || !slices.Equal(got.Queues, want.Queues) || found["ops"].Queues != nil {
		s.Fatalf("in force: %+v, ever %v", found, ever)
	}

	list, err := s.engine.Tokens(s.ctx)
	s.must(err)
	if len(list) != 2 || list[0].Name != "ops" || list[1].Name != "shop" || list[1].CreatedBy != "ada" || list[1].CreatedAt.IsZero() ||
		!list[1].ExpiresAt.IsZero() || list[1].Expired || !list[1].LastUsedAt.IsZero() || !slices.Equal(list[1].Queues, want.Queues) {
		s.Fatalf("listed: %+v", list)
	}
	s.inForce("shop", "unknown")
	if list, err = s.engine.Tokens(s.ctx); err != nil || list[1].LastUsedAt.IsZero() || !list[0].LastUsedAt.IsZero() {
		s.Errorf("after one was used: %+v, %v", list, err)
	}

	s.must(s.engine.RevokeToken(posthaste.WithActor(s.ctx, "ada"), "shop"))
	s.wantCode("dropping it again", s.engine.RevokeToken(posthaste.WithActor(s.ctx, "ada"), "shop"), posthaste.CodeNotFound)
	if found, _ := s.inForce("shop"); len(found) != 1 || found["ops"].Name == "" {
		s.Errorf("after the drop: %+v", found)
	}
	again, err := s.engine.CreateToken(posthaste.WithActor(s.ctx, "ada"), posthaste.Token{Name: "shop", Scopes: []posthaste.Scope{posthaste.ScopeSend}})
	s.must(err)
	if found, _ := s.inForce(); found["shop"].Hash == sha256.Sum256([]byte(secret)) || found["shop"].Hash != sha256.Sum256([]byte(again)) {
		s.Error("the dropped secret is good again")
	}
	s.must(s.engine.RevokeToken(posthaste.WithActor(s.ctx, "ada"), "shop"))
	s.must(s.engine.RevokeToken(posthaste.WithActor(s.ctx, "ada"), "ops"))
	for _, scope := range posthaste.Scopes() {
		name := strings.ReplaceAll(string(scope), ":", "-")
		_, err := s.engine.CreateToken(posthaste.WithActor(s.ctx, "ada"), posthaste.Token{Name: name, Scopes: []posthaste.Scope{scope}})
		s.must(err)
		if found, _ := s.inForce(); !slices.Equal(found[name].Scopes, []posthaste.Scope{scope}) {
			s.Errorf("a token with scope %s: %+v", scope, found[name])
		}
		s.must(s.engine.RevokeToken(posthaste.WithActor(s.ctx, "ada"), name))
	}
	if found, ever := s.inForce(); len(found) != 0 || !ever {
		s.Errorf("after all were dropped: %+v, ever %v; the door must stay closed", found, ever)
	}
}

func tokensRefused(s *suite) {
	send := []posthaste.Scope{posthaste.ScopeSend}
	for what, bad := range map[string]posthaste.Token{
		"no name": {Scopes: send}, "a name with a space": {Name: "a b", Scopes: send}, "no scope": {Name: "t"},
		"an unknown scope":      {Name: "t", Scopes: []posthaste.Scope{"root"}},
		"admin for one queue":   {Name: "t", Scopes: []posthaste.Scope{posthaste.ScopeAdmin}, Queues: []string{"q"}},
		"an invalid queue name": {Name: "t", Scopes: send, Queues: []string{"No Good"}},
		"an end that has come":  {Name: "t", Scopes: send, ExpiresAt: time.Now().Add(-time.Hour)},
		"two ends":              {Name: "t", Scopes: send, ExpiresAt: time.Now().Add(time.Hour), ExpiresIn: time.Hour},
		"a negative end":        {Name: "t", Scopes: send, ExpiresIn: -time.Hour},
	} {
		_, err := s.engine.CreateToken(posthaste.WithActor(s.ctx, "ada"), bad)
		s.wantCode(what, err, posthaste.CodeInvalid)
	}
	if found, ever := s.inForce(); len(found) != 0 || ever {
		s.Errorf("a refused token is in force: %+v, ever %v", found, ever)
	}
	_, err := s.engine.CreateToken(posthaste.WithActor(s.ctx, "ada"), posthaste.Token{Name: "t", Scopes: send})
	s.must(err)
	_, err = s.engine.CreateToken(posthaste.WithActor(s.ctx, "ada"), posthaste.Token{Name: "t", Scopes: send})
	s.wantCode("a name that is taken", err, posthaste.CodeConflict)
}

func tokensExpire(s *suite) {
	_, err := s.engine.CreateToken(posthaste.WithActor(s.ctx, "ada"), posthaste.Token{Name: "short", Scopes: []posthaste.Scope{posthaste.ScopeSend}, ExpiresIn: 200 * time.Millisecond})
	s.must(err)
	_, err = s.engine.CreateToken(posthaste.WithActor(s.ctx, "ada"), posthaste.Token{Name: "long", Scopes: []posthaste.Scope{posthaste.ScopeSend}, ExpiresAt: time.Now().Add(24 * time.Hour)})
	s.must(err)
	s.until("the token expires", func() bool {
		found, _ := s.inForce()
		if found["long"].Name == "" {
			s.Fatal("the other one expired")
		}
		return found["short"].Name == ""
	})
	list, err := s.engine.Tokens(s.ctx)
	s.must(err)
	if len(list) != 2 || list[0].Expired || list[0].ExpiresAt.IsZero() || !list[1].Expired || list[1].ExpiresAt.IsZero() {
		s.Errorf("listed: %+v", list)
	}
}

func deliveryQueues(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.must(s.engine.CreateQueue(s.ctx, "other", posthaste.QueueOptions{}))
	s.send(2)
	_, err := s.engine.Send(s.ctx, posthaste.Message{Queue: "other", Payload: 1})
	s.must(err)
	mine := s.receive(2, time.Minute)
	theirsReply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "other"}, Max: 1, Lease: time.Minute})
	theirs := theirsReply.Deliveries
	s.must(err)
	queues, err := s.engine.DeliveryQueues(s.ctx, mine[1].ID, theirs[0].ID, 1<<50, mine[0].ID)
	s.must(err)
	if want := []string{s.queue, "other", "", s.queue}; !slices.Equal(queues, want) {
		s.Errorf("queues %q, want %q", queues, want)
	}
	if none, err := s.engine.DeliveryQueues(s.ctx); err != nil || len(none) != 0 {
		s.Errorf("of none: %q, %v", none, err)
	}
}

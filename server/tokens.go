package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// The allowed ages of the list of stored tokens, from the start of the query. A request
// uses a list younger than keepFresh. If the list is older, the request starts a reload and
// does not wait for it; if the list is older than keepAtMost, the request waits. A secret
// that is not on the list is looked up in a list younger than keepForStrangers, so that a
// new token is valid at once, and callers with wrong tokens cost the store at most four
// queries per second.
const (
	keepFresh        = time.Second
	keepAtMost       = 5 * time.Second
	keepForStrangers = 250 * time.Millisecond
	loadTimeout      = 5 * time.Second
)

// tokens looks up tokens: those of the configuration and those in the store, of which it
// caches a list.
type tokens struct {
	store posthaste.TokenStore
	given []posthaste.Token
	// required reports that a caller needs a token even if the store has none.
	required bool

	mu   sync.Mutex
	list *tokenList
	// failed is the error of the last reload, and failedAt the time of its start.
	failed   error
	failedAt time.Time
	// loading is closed at the end of the running reload; nil if none is running.
	loading chan struct{}
	used    map[string]bool
}

// tokenList is the tokens in the store at one time.
type tokenList struct {
	at time.Time
	// ever reports that a token was added at some time, so that callers need one: dropping
	// the last token must not open the API.
	ever bool
	// by maps the first bytes of the hashes to tokens. The time of the lookup may reveal these
	// bytes, which is harmless: an attacker cannot choose a secret by its hash. The whole hash
	// is compared in constant time.
	by map[[4]byte][]posthaste.Token
}

func newTokens(store posthaste.TokenStore, given []posthaste.Token, required bool) *tokens {
	return &tokens{store: store, given: given, required: required || len(given) > 0, used: map[string]bool{}}
}

// find returns the token with the given secret, or nil, and whether callers need a token. If
// the store is unavailable and stale is true, it uses an old list.
func (t *tokens) find(ctx context.Context, secret string, stale bool) (token *posthaste.Token, asked bool, err error) {
	hash := sha256.Sum256([]byte(secret))
	if token = match(t.given, hash); token != nil && secret != "" {
		return token, true, nil
	}
	if secret == "" && t.required {
		return nil, true, nil
	}
	list, err := t.current(ctx, keepAtMost)
	if err != nil && stale {
		list, err = t.last(err)
	}
	if err != nil || secret == "" {
		return nil, t.required || list != nil && list.ever, err
	}
	if token = list.match(hash); token == nil {
		fresher, err := t.current(ctx, keepForStrangers)
		if err == nil {
			list, token = fresher, fresher.match(hash)
		} else if !stale {
			return nil, true, err
		}
	}
	if token != nil {
		t.mu.Lock()
		t.used[token.Name] = true
		t.mu.Unlock()
	}
	return token, t.required || list.ever, nil
}

// last returns the newest list regardless of its age, or err if no list was read yet.
func (t *tokens) last(err error) (*tokenList, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.list != nil {
		err = nil
	}
	return t.list, err
}

func (l *tokenList) match(hash [sha256.Size]byte) *posthaste.Token {
	return match(l.by[[4]byte(hash[:])], hash)
}

// match compares with each token in constant time.
func match(tokens []posthaste.Token, hash [sha256.Size]byte) *posthaste.Token {
	var found *posthaste.Token
	for i := range tokens {
		if subtle.ConstantTimeCompare(hash[:], tokens[i].Hash[:]) == 1 {
			found = &tokens[i]
		}
	}
	return found
}

// current returns a list that is at most age old, and starts a reload if it is older than
// keepFresh.
func (t *tokens) current(ctx context.Context, age time.Duration) (*tokenList, error) {
	for begun := time.Now(); ; {
		t.mu.Lock()
		list, old := t.list, time.Duration(1<<62)
		if list != nil {
			old = time.Since(list.at)
		}
		switch {
		case old <= min(age, keepFresh):
			t.mu.Unlock()
			return list, nil
		case t.failed != nil && (t.failedAt.After(begun) || time.Since(t.failedAt) < keepForStrangers):
			err := t.failed
			t.mu.Unlock()
			if old <= age {
				return list, nil
			}
			return nil, err
		case t.loading == nil:
			t.loading = make(chan struct{})
			go t.load(slices.Collect(maps.Keys(t.used)), t.loading)
			t.used = map[string]bool{}
		}
		loading := t.loading
		t.mu.Unlock()
		if old <= age {
			return list, nil
		}
		select {
		case <-loading:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// load reads the list once. It does not use the context of a caller, because other callers
// wait for the list, too.
func (t *tokens) load(used []string, done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	list := &tokenList{at: time.Now(), by: map[[4]byte][]posthaste.Token{}}
	found, ever, err := t.store.TokensInForce(ctx, used...)
	if posthaste.CodeOf(err) == posthaste.CodeReadOnly {
		found, ever, err = t.store.TokensInForce(ctx) // a standby cannot record the times of use
	}
	for _, token := range found {
		list.by[[4]byte(token.Hash[:])] = append(list.by[[4]byte(token.Hash[:])], token)
	}
	list.ever = ever
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loading, t.failed = nil, nil
	if err != nil {
		t.failed, t.failedAt = cannotCheck(err), time.Now()
		for _, name := range used {
			t.used[name] = true
		}
		return
	}
	t.list = list
}

// cannotCheck is the error for a caller whose token cannot be looked up.
func cannotCheck(err error) error {
	var e *posthaste.Error
	if errors.As(err, &e) {
		switch e.Code {
		case posthaste.CodeUnavailable, posthaste.CodeSchemaOld, posthaste.CodeSchemaNew:
			return err
		case posthaste.CodeDenied:
			return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "the server has no permission to read the tokens in its database",
				Hint: "grant the role posthaste_admin to the server's database user", Cause: err}
		}
	}
	return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "the tokens could not be read from the store", Hint: "try again", Cause: err}
}

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

// How old the list of stored tokens may be, counted from when the store was
// asked. A request finds a list younger than keepFresh as it is; past that it
// has the list read anew without waiting; past keepAtMost it waits for that. A
// secret that is not on the list is looked for in one that is younger than
// keepForStrangers, so that a new token is good at once, and a caller with a
// wrong one costs the store no more than four questions a second.
const (
	keepFresh        = time.Second
	keepAtMost       = 5 * time.Second
	keepForStrangers = 250 * time.Millisecond
	loadTimeout      = 5 * time.Second
)

// tokens knows whom the tokens belong to: some are given at the start, the
// others are the store's, of which it keeps a list.
type tokens struct {
	store posthaste.Tokens
	given []posthaste.Token
	// required says that a caller needs a token whatever the store has.
	required bool

	mu   sync.Mutex
	list *tokenList
	// failed is what came of the last reading, and failedAt when it began.
	failed   error
	failedAt time.Time
	// loading is closed when the reading under way has ended; nil if none is.
	loading chan struct{}
	used    map[string]bool
}

// tokenList is the store's tokens at one time.
type tokenList struct {
	at time.Time
	// ever says that a token was made at some time, and so that they are asked
	// for: dropping the last one closes the door and does not open it.
	ever bool
	// by finds tokens by the first bytes of their hashes. Looking there takes
	// a time that may tell these bytes, which are of no use: nobody can choose
	// a secret by its hash. The whole hash is compared in constant time.
	by map[[4]byte][]posthaste.Token
}

func newTokens(store posthaste.Tokens, given []posthaste.Token, required bool) *tokens {
	return &tokens{store: store, given: given, required: required || len(given) > 0, used: map[string]bool{}}
}

// find returns the token of a secret, nil if there is none, and whether one is
// asked for at all. Where the store cannot be asked, an old list will do if
// stale says so.
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

// last is the newest list of all, or err where there is none.
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

// current returns a list that was read at most age ago, and has it read anew
// where it is older than keepFresh.
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

// load reads the list once. No caller's leaving cuts it off, for others wait.
func (t *tokens) load(used []string, done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	list := &tokenList{at: time.Now(), by: map[[4]byte][]posthaste.Token{}}
	found, ever, err := t.store.TokensInForce(ctx, used...)
	if posthaste.CodeOf(err) == posthaste.ReadOnly {
		found, ever, err = t.store.TokensInForce(ctx) // a standby keeps no times of use
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

// cannotCheck is what a caller is told whose token cannot be looked up.
func cannotCheck(err error) error {
	var e *posthaste.Error
	if errors.As(err, &e) {
		switch e.Code {
		case posthaste.Unavailable, posthaste.SchemaOld, posthaste.SchemaNew:
			return err
		case posthaste.Denied:
			return &posthaste.Error{Code: posthaste.Unavailable, Message: "the server may not read the tokens in its database",
				Hint: "grant the role posthaste_admin to the server's database user", Cause: err}
		}
	}
	return &posthaste.Error{Code: posthaste.Unavailable, Message: "the store could not be asked for the tokens", Hint: "try again", Cause: err}
}

package nats

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
)

// storedToken is the entry token.<name> of the store. Only the bearer has the secret.
type storedToken struct {
	Name    string            `json:"name"`
	Hash    []byte            `json:"hash"`
	Scopes  []posthaste.Scope `json:"scopes"`
	Queues  []string          `json:"queues,omitempty"`
	By      string            `json:"by"`
	Created time.Time         `json:"created"`
	Expires time.Time         `json:"expires,omitzero"`
	Used    time.Time         `json:"used,omitzero"`
}

const (
	// secretBytes is the number of random bytes of a secret.
	secretBytes = 32
	// tokensMost is about the maximum of tokens.
	tokensMost = 1000
	// usedAgain is how old the stored time of a token's last use may be.
	usedAgain = 5 * time.Minute
	// tokensEver is the key of the entry which says that a token has existed.
	tokensEver = "tokens-ever"
)

// CreateToken implements [posthaste.TokenStore]. The secret does not leave this process: the store
// only has its SHA-256.
func (e *Engine) CreateToken(ctx context.Context, t posthaste.Token) (string, error) {
	if err := posthaste.CheckName("name", t.Name); err != nil {
		return "", err
	}
	if err := t.CheckStored(); err != nil {
		return "", err
	}
	all, err := e.allTokens(ctx)
	if err != nil {
		return "", err
	}
	if len(all) >= tokensMost {
		return "", &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "name", Message: fmt.Sprintf("the maximum of %d tokens is reached", tokensMost), Hint: "drop some tokens"}
	}
	secret, is := newToken(ctx, &t, e.clock.now())
	if !is.Expires.IsZero() && !is.Expires.After(is.Created) {
		return "", posthaste.Invalidf("expires_at", "a token must expire in the future")
	}
	// This is stored first: a server without a token that ever existed is open to all, and must not stay
	// open because this process was killed in between.
	if _, err := e.kv.Create(ctx, tokensEver, nil); err != nil && !conflicts(err) {
		return "", e.readError(err)
	}
	_, err = e.tokens.put(ctx, subjectToken(t.Name), is, 0)
	if conflicts(err) {
		return "", &posthaste.Error{Code: posthaste.CodeConflict, Field: "name", Message: "token " + quoted(t.Name) + " already exists",
			Hint: "a new secret needs a new name: add a token, distribute its secret, then drop the old one"}
	}
	if err != nil {
		return "", e.writeError(err)
	}
	if err := e.record(ctx, "token_add", "", 0, map[string]string{"token": t.Name}); err != nil {
		_, undo := e.dropToken(ctx, t.Name) // its secret would be lost
		if undo != nil {
			return "", errors.Join(err, undo)
		}
		return "", e.readError(errors.Unwrap(err))
	}
	return secret, nil
}

// newToken makes a secret, and the entry of the token.
func newToken(ctx context.Context, t *posthaste.Token, now time.Time) (secret string, is *storedToken) {
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // it never fails
	secret = "ph_" + base64.RawURLEncoding.EncodeToString(random)
	hash := sha256.Sum256([]byte(secret))
	is = &storedToken{Name: t.Name, Hash: hash[:], Scopes: sortedSet(t.Scopes), Queues: sortedSet(t.Queues), By: cmp.Or(posthaste.ActorOf(ctx), "nats"), Created: now, Expires: t.ExpiresAt}
	if t.ExpiresIn > 0 {
		is.Expires = now.Add(t.ExpiresIn)
	}
	return secret, is
}

func sortedSet[S ~string](all []S) []S { return slices.Compact(slices.Sorted(slices.Values(all))) }

// RevokeToken implements [posthaste.TokenStore].
func (e *Engine) RevokeToken(ctx context.Context, name string) error {
	if err := posthaste.CheckName("name", name); err != nil {
		return err
	}
	if err := e.ready(ctx); err != nil {
		return err
	}
	dropped, err := e.dropToken(ctx, name)
	if err == nil && !dropped {
		return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "name", Message: "token " + quoted(name) + " does not exist", Hint: "list them"}
	}
	if err != nil {
		return err
	}
	return e.record(ctx, "token_drop", "", 0, map[string]string{"token": name})
}

// dropToken removes a token, and reports whether it existed.
func (e *Engine) dropToken(ctx context.Context, name string) (dropped bool, err error) {
	_, err = e.tokens.change(ctx, subjectToken(name), func(was *storedToken) (*storedToken, error) {
		dropped = was != nil
		return nil, nil
	})
	return dropped, err
}

// Tokens implements [posthaste.TokenStore].
func (e *Engine) Tokens(ctx context.Context) ([]posthaste.Token, error) { return e.allTokens(ctx) }

// TokensInForce implements [posthaste.TokenStore].
func (e *Engine) TokensInForce(ctx context.Context, used ...string) ([]posthaste.Token, bool, error) {
	all, err := e.allTokens(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, t := range all {
		if slices.Contains(used, t.Name) && e.clock.now().Sub(t.LastUsedAt) >= usedAgain {
			e.useToken(ctx, t.Name)
		}
	}
	ever := len(all) > 0
	if !ever {
		if _, err = e.kv.Get(ctx, tokensEver); err == nil {
			ever = true
		} else if !errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil, false, e.readError(err)
		}
	}
	return slices.DeleteFunc(all, func(t posthaste.Token) bool { return t.Expired }), ever, nil
}

// useToken stores when a token was used. If that fails, the token is still valid, and the next call stores
// it.
func (e *Engine) useToken(ctx context.Context, name string) {
	_, _ = e.tokens.change(ctx, subjectToken(name), func(was *storedToken) (*storedToken, error) {
		now := e.clock.now()
		if was == nil || now.Sub(was.Used) < usedAgain {
			return nil, errSame
		}
		next := *was
		next.Used = now
		return &next, nil
	})
}

// allTokens returns the tokens that the store has now, by name.
func (e *Engine) allTokens(ctx context.Context) (tokens []posthaste.Token, err error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	all, err := e.tokens.freshAll(ctx)
	if err != nil {
		return nil, err
	}
	now := e.clock.now()
	for _, is := range all {
		t := posthaste.Token{Name: is.Name, Scopes: slices.Clone(is.Scopes), Queues: slices.Clone(is.Queues), CreatedAt: is.Created, CreatedBy: is.By, ExpiresAt: is.Expires, LastUsedAt: is.Used}
		copy(t.Hash[:], is.Hash)
		t.Expired = !is.Expires.IsZero() && !is.Expires.After(now)
		tokens = append(tokens, t)
	}
	slices.SortFunc(tokens, func(a, b posthaste.Token) int { return cmp.Compare(a.Name, b.Name) })
	return tokens, nil
}

// DeliveryQueues implements [posthaste.TokenStore].
func (e *Engine) DeliveryQueues(ctx context.Context, deliveries ...posthaste.DeliveryID) ([]string, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	queues := make([]string, len(deliveries))
	var elsewhere []posthaste.DeliveryID
	var indexes []int
	for i, id := range deliveries {
		if d := e.holding.get(id); d != nil {
			queues[i] = d.q.Name
		} else {
			elsewhere, indexes = append(elsewhere, id), append(indexes, i)
		}
	}
	if len(elsewhere) == 0 {
		return queues, nil
	}
	names, err := e.askQueues(ctx, elsewhere)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		queues[indexes[i]] = name
	}
	return queues, nil
}

package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// token is a token as it is stored.
type token struct {
	Hash    string            `codec:"h"`
	Scopes  []posthaste.Scope `codec:"s"`
	Queues  []string          `codec:"q,omitempty"`
	By      string            `codec:"b"`
	Created int64             `codec:"c,omitempty"`
	Expires int64             `codec:"x,omitempty"`
	Used    int64             `codec:"u,omitempty"`
}

const (
	// secretBytes is the number of random bytes of a secret.
	secretBytes = 32
	// tokensMost is the maximum of tokens, as in token.lua.
	tokensMost = 1000
)

// CreateToken implements [posthaste.TokenStore]. The secret does not leave this process: Redis only
// has its SHA-256.
func (e *Engine) CreateToken(ctx context.Context, t posthaste.Token) (string, error) {
	if err := posthaste.CheckName("name", t.Name); err != nil {
		return "", err
	}
	if err := t.CheckStored(); err != nil {
		return "", err
	}
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // it never fails
	secret := "ph_" + base64.RawURLEncoding.EncodeToString(random)
	hash := sha256.Sum256([]byte(secret))
	var at, in any = "", ""
	if !t.ExpiresAt.IsZero() {
		at = micros(t.ExpiresAt)
	}
	if t.ExpiresIn > 0 {
		in = max(1, t.ExpiresIn.Microseconds())
	}
	reply, err := tokenScript.run(ctx, e.client, []string{e.keys.tokens()}, arguments{{"what", "add"}, {"name", t.Name}, {"expires", at}, {"lasts", in},
		{"token", packed(token{Hash: string(hash[:]), Scopes: sorted(t.Scopes), Queues: sorted(t.Queues), By: cmp.Or(posthaste.ActorOf(ctx), "redis")})}})
	if err != nil {
		return "", writeError(err)
	}
	switch reply {
	case "exists":
		return "", &posthaste.Error{Code: posthaste.CodeConflict, Field: "name", Message: "token " + quote.Name(t.Name) + " already exists",
			Hint: "a new secret needs a new name: add a token, distribute its secret, then drop the old one"}
	case "full":
		return "", &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "name", Message: fmt.Sprintf("the maximum of %d tokens is reached", tokensMost), Hint: "drop some tokens"}
	case "past":
		return "", posthaste.Invalidf("expires_at", "a token must expire in the future")
	}
	if err := e.recordToken(ctx, "token_add", t.Name); err != nil {
		_, undo := e.dropToken(ctx, t.Name) // its secret would be lost
		if undo != nil {
			return "", errors.Join(err, undo)
		}
		return "", readError(errors.Unwrap(err))
	}
	return secret, nil
}

func sorted[S ~string](all []S) []S { return slices.Compact(slices.Sorted(slices.Values(all))) }

// RevokeToken implements [posthaste.TokenStore].
func (e *Engine) RevokeToken(ctx context.Context, name string) error {
	if err := posthaste.CheckName("name", name); err != nil {
		return err
	}
	dropped, err := e.dropToken(ctx, name)
	if err == nil && !dropped {
		return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "name", Message: "token " + quote.Name(name) + " does not exist", Hint: "list them"}
	}
	if err != nil {
		return writeError(err)
	}
	return writeError(e.recordToken(ctx, "token_drop", name))
}

// dropToken reports whether there was such a token.
func (e *Engine) dropToken(ctx context.Context, name string) (bool, error) {
	reply, err := tokenScript.run(ctx, e.client, []string{e.keys.tokens()}, arguments{{"what", "drop"}, {"name", name}, {"expires", ""}, {"lasts", ""}, {"token", ""}})
	return reply != int64(0), err
}

// recordToken records a change of a token, without its secret.
func (e *Engine) recordToken(ctx context.Context, action, name string) error {
	details, err := json.Marshal(map[string]string{"token": name})
	if err != nil {
		return err
	}
	return e.record(ctx, record{Action: action, Details: details})
}

// Tokens implements [posthaste.TokenStore].
func (e *Engine) Tokens(ctx context.Context) ([]posthaste.Token, error) {
	all, _, err := e.tokens(ctx, nil)
	return all, err
}

// TokensInForce implements [posthaste.TokenStore].
func (e *Engine) TokensInForce(ctx context.Context, used ...string) ([]posthaste.Token, bool, error) {
	all, ever, err := e.tokens(ctx, used)
	if err != nil {
		return nil, false, err
	}
	return slices.DeleteFunc(all, func(t posthaste.Token) bool { return t.Expired }), ever, nil
}

func (e *Engine) tokens(ctx context.Context, used []string) (tokens []posthaste.Token, ever bool, err error) {
	args := arguments{{"what", "list"}, {"name", ""}, {"expires", ""}, {"lasts", ""}, {"token", ""}}
	for _, name := range used {
		if posthaste.CheckName("name", name) == nil {
			args = append(args, arg{is: name})
		}
	}
	reply, err := tokenScript.run(ctx, e.client, []string{e.keys.tokens()}, args)
	if err != nil {
		return nil, false, readError(err)
	}
	all, err := list("tokens", reply, 2)
	if err != nil {
		return nil, false, err
	}
	now, _ := parseMicros(str(all[0]))
	for row := range slices.Chunk(all[2:], 2) {
		var is token
		if err := unpack(str(row[len(row)-1]), &is); err != nil {
			return nil, false, err
		}
		t := posthaste.Token{Name: str(row[0]), Scopes: is.Scopes, Queues: is.Queues, CreatedAt: at(is.Created), CreatedBy: is.By}
		copy(t.Hash[:], is.Hash)
		if is.Expires != 0 {
			t.ExpiresAt, t.Expired = at(is.Expires), is.Expires <= now
		}
		if is.Used != 0 {
			t.LastUsedAt = at(is.Used)
		}
		tokens = append(tokens, t)
	}
	slices.SortFunc(tokens, func(a, b posthaste.Token) int { return cmp.Compare(a.Name, b.Name) })
	return tokens, str(all[1]) == "1", nil
}

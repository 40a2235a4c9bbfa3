package posthaste_test

import (
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// A store keeps tokens for at most 100 queues. A program can give its server others.
func TestStoredTokensHaveFewQueues(t *testing.T) {
	t.Parallel()
	token := posthaste.Token{Name: "t", Scopes: []posthaste.Scope{posthaste.ScopeSend}, Queues: slices.Repeat([]string{"q"}, 101)}
	if err := token.Check(); err != nil {
		t.Error(err)
	}
	if err := token.CheckStored(); posthaste.CodeOf(err) != posthaste.CodeInvalid {
		t.Errorf("101 queues: %v", err)
	}
	token.Queues = token.Queues[:100]
	if err := token.CheckStored(); err != nil {
		t.Error(err)
	}
}

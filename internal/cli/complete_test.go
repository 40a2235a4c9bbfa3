package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
)

// several is a store whose queues have two subscriptions.
type several struct{ posthaste.Store }

func (s several) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	queues, err := s.Store.Queues(ctx, names...)
	for i := range queues {
		queues[i].Subscriptions = append(queues[i].Subscriptions, posthaste.SubscriptionInfo{Name: queues[i].Name + "-audit"})
	}
	return queues, err
}

// away is a store that cannot be read.
type away struct{ posthaste.Store }

func (away) Queues(context.Context, ...string) ([]posthaste.QueueInfo, error) {
	return nil, errors.New("away")
}

// completed returns what a shell offers after words, the last of which is begun.
func completed(t *testing.T, store posthaste.Store, words ...string) string {
	t.Helper()
	p := newProgram(store)
	stdout, _, code := p.run(t.Context(), append([]string{"__complete"}, words...)...)
	if code != 0 {
		t.Fatalf("%q ends with %d", words, code)
	}
	return strings.Join(strings.Fields(stdout), " ")
}

// A shell completes names of things in the store.
func TestNamesAreCompleted(t *testing.T) {
	ownContexts(t)
	s := &session{T: t, store: memory.Open()}
	for _, queue := range []string{"orders", "other", "mails"} {
		s.does("queue create " + queue)
	}
	s.does("schedule put nightly orders @daily")
	s.does("token add shop --scope send")
	s.does("context set prod --database-url postgres://db/app")
	const noFiles, failed = " :4", " :1"
	for _, c := range []struct{ words, want string }{
		{"queue show |", "mails orders other"},
		{"queue drop or|", "orders"},
		{"queue get ot|", "other"},
		{"queue ls orders |", "mails other"},
		{"send o|", "orders other"},
		{"send orders |", ""},
		{"receive |", "mails orders other"},
		{"receive orders --subscription |", "default orders-audit"},
		{"queue unsubscribe orders orders-|", "orders-audit"},
		{"queue peek orders --subscription d|", "default"},
		{"message ls --queue m|", "mails"},
		{"message ls -q m|", "mails"},
		{"dead ls --queue other --subscription |", "default other-audit"},
		{"dead ls --subscription o|", "orders-audit other-audit"},
		{"schedule show |", "nightly"},
		{"schedule put nightly |", "mails orders other"},
		{"schedule put nightly orders |", ""},
		{"token drop |", "shop"},
		{"message show |", ""},
		{"queue create |", ""},
		{"queue ls -o |", "table json yaml jsonl"},
		{"queue ls --context |", "prod"},
		{"context use |", "prod"},
		{"context rm p|", "prod"},
	} {
		words, begun, _ := strings.Cut(c.words, "|")
		args := strings.Fields(words)
		if !strings.HasSuffix(words, " ") {
			begun, args = args[len(args)-1], args[:len(args)-1]
		}
		if got := completed(t, several{s.store}, append(args, begun)...); got != strings.TrimSpace(c.want+noFiles) {
			t.Errorf("%s: %q, want %q", c.words, got, c.want)
		}
	}
	if got := completed(t, away{s.store}, "queue", "show", ""); got != strings.TrimSpace(failed) {
		t.Errorf("without a store: %q", got)
	}
}

package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/memory"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// E-mails are sent from flags, or from the JSON of the HTTP API, and found by their status.
func TestEmailCommands(t *testing.T) {
	t.Parallel()
	s := &session{T: t, store: memory.Open()}
	if err := makeEmails(t.Context(), s.store, posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bill.txt")
	if err := os.WriteFile(file, []byte("7 EUR"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.ends(0, []string{"email", "send", "--from", "shop@example.com", "--to", "Ada <Ada@Example.com>", "--cc", "bob@example.com", "--subject", "Hello", "--text", "x", "--reference", "order-7", "--attach", file, "--header", "X-Order=7", "--delay", "1h"}, `^\d+$`)
	id := strings.TrimSpace(s.out)
	s.does("email ls --status scheduled", "^ID +STATUS +ATTEMPTS", "^"+id+" +scheduled +0 +0s ago +order-7 +ada@example.com, bob@example.com$")
	s.does("email list --recipient ADA@example.com --reference order-7 -o jsonl", `^\{"id":"`+id+`","status":"scheduled",.*"recipients":\["ada@example.com","bob@example.com"\]`)
	s.does("email ls --status sent", "^no e-mails found$")
	s.does("email show "+id, "^status +scheduled$", "^to +Ada <Ada@Example.com>$", `^due +20.* \(in 59m\)$`)
	s.does("email get --json "+id, `"cc":\["bob@example.com"\],"subject":"Hello"`)
	s.does("message show "+id, `"filename": ?"bill.txt"`, `"X-Order": ?"7"`)

	s.stdin = "From standard input.\n"
	s.does("email send --from shop@example.com --to ada@example.com")
	s.does("message show "+strings.TrimSpace(s.out), `"text": ?"From standard input."`)
	s.stdin = `{"from": "shop@example.com", "to": ["ada@example.com"], "text": "x", "send_at": "2999-01-01T00:00:00Z"}`
	s.does("email send --file -")
	s.does("email show "+strings.TrimSpace(s.out), "^due +2999-01-01")

	s.refuses("email send --file mail.json --subject x", "--subject and --file are mutually exclusive")
	s.refuses("email send --from shop@example.com --text x", "at least one recipient")
	s.refuses("email send --from shop@example.com --to ada@example.com --text x --attach nowhere.pdf", "readable file with --attach")
	s.refuses("email ls --status ready", "must be scheduled, claimed, sent")
	s.ends(exitUsage, []string{"email", "ls", "--recipient", " "}, "must be an e-mail address")
	s.does("queue create other")
	s.does("send other 1")
	other := strings.TrimSpace(s.out)
	s.ends(exitFailed, []string{"email", "show", other}, "in queue other", "posthaste message show "+other)
}

// The answers of the mail server are shown for each recipient.
func TestEmailAnswers(t *testing.T) {
	t.Parallel()
	s := &session{T: t, store: memory.Open()}
	if err := makeEmails(t.Context(), s.store, posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	s.does("email send --from shop@example.com --to ada@example.com --text x")
	id := strings.TrimSpace(s.out)
	s.does("receive emails --json")
	s.does(`message ack ` + s.found(`^\[\{"id":"(\d+)"`) + ` --receipt {"message_id":"<7@example.com>","recipients":{"ada@example.com":{"status":"accepted","code":250,"text":"Ok","attempt":1,"at":"2026-01-02T03:04:05Z"}}}`)
	s.does("email ls --status sent", "^"+id+" +sent +1")
	s.does("email show "+id, "^Message-ID +<7@example.com>$", `^ada@example.com +accepted +250 +\d+\w ago +Ok$`, "^1 +done")
	s.does("email show --json "+id, `"answers":\{"ada@example.com":\{"status":"accepted"`)
}

// states is a store with a page of messages for each state.
type states struct {
	posthaste.Store
	pages map[posthaste.State]posthaste.Page[posthaste.MessageInfo]
}

func (s states) Messages(_ context.Context, f posthaste.MessageFilter) (posthaste.Page[posthaste.MessageInfo], error) {
	return s.pages[f.State], nil
}

// A page of several states ends where the shortest of their pages does.
func TestMessagesInSeveralStates(t *testing.T) {
	t.Parallel()
	list := func(next posthaste.MessageID, ids ...posthaste.MessageID) (p posthaste.Page[posthaste.MessageInfo]) {
		for _, id := range ids {
			p.Items = append(p.Items, posthaste.MessageInfo{ID: id, Queue: email.Queue, CreatedAt: time.Unix(0, 0)})
		}
		p.Next = next
		return p
	}
	a, b := posthaste.StateReady, posthaste.StateDead
	for _, c := range []struct {
		first, second posthaste.Page[posthaste.MessageInfo]
		limit         int
		want          string
	}{
		{list(0, 9, 5), list(0, 7, 5), 10, "9 7 5 next 0"},
		{list(5, 9, 5), list(0, 7, 3), 10, "9 7 5 next 5"},
		{list(0, 9, 8, 7), list(0, 6), 2, "9 8 next 8"},
		{list(6), list(0, 5), 10, "next 6"},
	} {
		p, err := wire.MessagesIn(t.Context(), states{memory.Open(), map[posthaste.State]posthaste.Page[posthaste.MessageInfo]{a: c.first, b: c.second}},
			posthaste.MessageFilter{Limit: c.limit}, []posthaste.State{a, b})
		got := ""
		for _, m := range p.Items {
			got += m.ID.String() + " "
		}
		if next := p.Next.String(); got+"next "+next != c.want || err != nil {
			t.Errorf("%v and %v: %s, %v, want %s", c.first, c.second, got+"next "+next, err, c.want)
		}
	}
}

// Workers are listed with whether they live.
func TestWorkerLs(t *testing.T) {
	t.Parallel()
	s := &session{T: t, store: memory.Open()}
	s.does("worker ls", "^no workers are registered$")
	if _, err := s.store.Register(t.Context(), posthaste.WorkerInfo{Name: "host/7", Lease: time.Minute, Version: "1.2"}); err != nil {
		t.Fatal(err)
	}
	s.does("worker ls", "^ID +NAME +VERSION +STARTED +HEARTBEAT +STATE +RUNNING +LONGEST$", `host/7 +1.2 +0s ago +0s ago +alive$`)
	s.does("worker list --json", `"name":"host/7"`)
}

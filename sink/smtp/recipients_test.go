package smtp

import (
	"fmt"
	"maps"
	"testing"

	"github.com/emersion/go-smtp"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/catcher"
)

// TestManyRecipients: recipients above the server's limit are divided, with and without
// pipelining.
func TestManyRecipients(t *testing.T) {
	t.Parallel()
	var to []string
	for i := range 150 {
		to = append(to, fmt.Sprintf("r%d@example.com", i))
	}
	for _, c := range []struct {
		config       catcher.Config
		transactions int
	}{
		{catcher.Config{}, 2},
		{catcher.Config{MaxRecipients: 40}, 4},
		{catcher.Config{Without: []string{"PIPELINING"}}, 2},
		// The server does not announce its limit, but rejects the surplus (452 4.5.3).
		{catcher.Config{MaxRecipients: 40, Without: []string{"LIMITS"}}, 5},
		{catcher.Config{MaxRecipients: 7, Without: []string{"LIMITS", "PIPELINING"}}, 23},
		{catcher.Config{MaxRecipients: 1, Without: []string{"LIMITS"}}, 150},
	} {
		server := startCatcher(t, c.config)
		server.Inject(catcher.Fault{Stage: catcher.StageRcpt, Recipient: "r70@example.com", Code: 550})
		r, _ := attemptOnce(t, newSink(t, server.Addr(), ""), delivery(t, simple(to...)))
		wantPermanent(t, r, "r70@example.com: 550", "accepted for 149 of 150")
		want := map[string]int{}
		for _, a := range to {
			want[a] = 1
		}
		delete(want, "r70@example.com")
		if got := mailed(server); !maps.Equal(got, want) || server.Stats().Transactions != c.transactions || server.Stats().Connections != 1 {
			t.Errorf("%d mailed, %+v", len(got), server.Stats())
		}
	}
}

// TestDroppedBetweenTransactions: recipients that were accepted before the connection was lost
// stay accepted.
func TestDroppedBetweenTransactions(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{MaxRecipients: 1})
	s := newSink(t, c.Addr(), "")
	c.Inject(catcher.Fault{Stage: catcher.StageEnd, DropAfter: true})
	d := delivery(t, simple("a@example.com", "b@example.com", "c@example.com"))
	r, receipt := attemptOnce(t, s, d)
	wantRetry(t, r, "b@example.com", "accepted for 1 of 3")
	if got := statuses(receipt); got != "a@example.com=accepted/250/1 b@example.com=deferred/0/1 c@example.com=deferred/0/1" {
		t.Errorf("receipt %s", got)
	}
	r, _ = attemptOnce(t, s, after(d, r, posthaste.OutcomeRetried))
	wantOK(t, r)
	if got := mailed(c); !maps.Equal(got, map[string]int{"a@example.com": 1, "b@example.com": 1, "c@example.com": 1}) {
		t.Errorf("mailed %v", got)
	}
}

// A recipient that the server rejects as one too many even alone keeps that reply. So does one
// of several recipients that the server never accepts.
func TestTooManyRecipientsForEver(t *testing.T) {
	t.Parallel()
	server := startCatcher(t, catcher.Config{})
	server.Inject(catcher.Fault{Stage: catcher.StageRcpt, Recipient: "carl@example.com", Code: 452, Times: -1})
	r, receipt := attemptOnce(t, newSink(t, server.Addr(), ""), delivery(t, simple("bob@example.com", "carl@example.com", "dora@example.com")))
	wantRetry(t, r, "carl@example.com", "452")
	if got := statuses(receipt); got != "bob@example.com=accepted/250/1 carl@example.com=deferred/452/1 dora@example.com=accepted/250/1" {
		t.Errorf("receipt %s", got)
	}
	if n := server.Stats().Transactions; n != 2 {
		t.Errorf("%d transactions", n)
	}
}

// TestTooManyRecipientsInOldWords: 552 for a recipient is retried, unless its status code gives
// another reason. 552 for the mail is final.
func TestTooManyRecipientsInOldWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stage    catcher.Stage
		enhanced smtp.EnhancedCode
		passes   bool
	}{
		{catcher.StageRcpt, smtp.NoEnhancedCode, true},
		{catcher.StageRcpt, smtp.EnhancedCode{5, 5, 3}, true},
		{catcher.StageRcpt, smtp.EnhancedCode{5, 2, 2}, false},
		{catcher.StageMail, smtp.NoEnhancedCode, false},
		{catcher.StageEnd, smtp.NoEnhancedCode, false},
	} {
		server := startCatcher(t, catcher.Config{})
		fault := catcher.Fault{Stage: c.stage, Code: 552, Enhanced: c.enhanced, Text: "too many"}
		if c.stage == catcher.StageRcpt {
			fault.Recipient = "carl@example.com"
		}
		server.Inject(fault)
		s := newSink(t, server.Addr(), "")
		d := delivery(t, simple("bob@example.com", "carl@example.com"))
		r, receipt := attemptOnce(t, s, d)
		if !c.passes {
			wantPermanent(t, r, "552", "too many")
			continue
		}
		// A transaction of its own succeeds.
		wantOK(t, r)
		if got := statuses(receipt); got != "bob@example.com=accepted/250/1 carl@example.com=accepted/250/1" {
			t.Errorf("receipt %s", got)
		}
		if got := mailed(server); !maps.Equal(got, map[string]int{"bob@example.com": 1, "carl@example.com": 1}) {
			t.Errorf("mailed %v", got)
		}
	}
}

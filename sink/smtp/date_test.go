package smtp

import (
	"bytes"
	"net/mail"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/catcher"
)

// dateOf returns the Date header of a mail.
func dateOf(t *testing.T, raw []byte) time.Time {
	t.Helper()
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	date, err := m.Header.Date()
	if err != nil {
		t.Fatal(err)
	}
	return date
}

// The Date of a mail is the time at which it was first due.
func TestDate(t *testing.T) {
	t.Parallel()
	sent := time.Now().Add(-60 * 24 * time.Hour).Truncate(time.Second)
	due := sent.Add(30 * 24 * time.Hour)
	lost := func(first time.Time) []posthaste.Attempt {
		return []posthaste.Attempt{{Attempt: 1, Outcome: posthaste.OutcomeLost, ClaimedAt: first}}
	}
	for name, c := range map[string]struct {
		sendAt, dueAt time.Time // of the mail, and of the attempt
		story         []posthaste.Attempt
		want          time.Time
	}{
		"sent now":                         {want: sent},
		"delayed over HTTP or in Go":       {sendAt: due, dueAt: due, want: due},
		"delayed by SQL, or by delay":      {dueAt: due, want: due},
		"rescheduled to later":             {sendAt: due, dueAt: due.Add(time.Hour), want: due.Add(time.Hour)},
		"rescheduled to earlier":           {sendAt: due, dueAt: sent.Add(time.Minute), want: sent.Add(time.Minute)},
		"delayed, due time unknown":        {sendAt: due, want: due},
		"send_at had passed":               {sendAt: sent.Add(-time.Hour), want: sent},
		"process died":                     {dueAt: due, story: lost(sent.Add(time.Minute)), want: sent},
		"delayed, process died":            {sendAt: due, dueAt: due.Add(time.Hour), story: lost(due.Add(time.Second)), want: due},
		"delayed by SQL, process died":     {dueAt: due.Add(time.Hour), story: lost(due.Add(time.Second)), want: due.Add(time.Second)},
		"rescheduled, process died":        {sendAt: due, dueAt: due, story: lost(sent.Add(2 * time.Hour)), want: sent.Add(2 * time.Hour)},
		"an older program left no date":    {dueAt: due, story: []posthaste.Attempt{{Attempt: 1, ClaimedAt: sent, Receipt: []byte(`{"recipients":{}}`)}}, want: sent},
		"another program's receipt (JSON)": {story: []posthaste.Attempt{{Attempt: 1, ClaimedAt: sent, Receipt: []byte(`{"date":"x"}`)}}, want: sent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startCatcher(t, catcher.Config{})
			e := simple()
			e.SendAt = c.sendAt
			d := delivery(t, e)
			d.CreatedAt, d.DueAt, d.Story, d.Attempt = sent, c.dueAt, c.story, 1+len(c.story)
			r, receipt := attemptOnce(t, newSink(t, server.Addr(), ""), d)
			wantOK(t, r)
			if got := dateOf(t, server.Mails()[0].Raw); !got.Equal(c.want) || !receipt.Date.Equal(c.want) {
				t.Errorf("the mail has the date %s and the receipt %s, want %s", got, receipt.Date, c.want)
			}
		})
	}
}

// A delayed mail stays the same on all retries and after a replay, whatever the due time of
// each attempt.
func TestDateStays(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{})
	s := newSink(t, c.Addr(), "")
	c.Inject(catcher.Fault{Stage: catcher.StageEnd, Code: 451, Kept: true, Times: 2})
	c.Inject(catcher.Fault{Stage: catcher.StageEnd, Code: 550, Kept: true, Times: 1})
	d := delivery(t, simple())
	d.DueAt = created.Add(30 * 24 * time.Hour)
	for _, outcome := range []posthaste.Outcome{posthaste.OutcomeRetried, posthaste.OutcomeRetried, posthaste.OutcomeDead} {
		r, _ := attemptOnce(t, s, d)
		if r.Err == nil {
			t.Fatal("the server accepted the mail")
		}
		d = after(d, r, outcome)
		d.DueAt = d.DueAt.Add(time.Hour)
	}
	// A worker that died leaves no receipt.
	d.Story = append(d.Story, posthaste.Attempt{Attempt: d.Attempt, Outcome: posthaste.OutcomeLost, ClaimedAt: d.DueAt})
	d.Attempt++
	r, _ := attemptOnce(t, s, d)
	wantOK(t, r)
	mails := c.Mails()
	if len(mails) != 4 {
		t.Fatalf("%d mails", len(mails))
	}
	for i, m := range mails {
		if !bytes.Equal(m.Raw, mails[0].Raw) {
			t.Errorf("mail %d differs from the first:\n%s\n%s", i, m.Raw, mails[0].Raw)
		}
	}
	if want := created.Add(30 * 24 * time.Hour).Truncate(time.Second); !dateOf(t, mails[0].Raw).Equal(want) {
		t.Errorf("the mail has the date %s, want %s", dateOf(t, mails[0].Raw), want)
	}
}

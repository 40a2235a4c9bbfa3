package smtp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

var created = time.Date(2026, 10, 1, 12, 0, 0, 123456000, time.UTC)

func startCatcher(t *testing.T, cfg catcher.Config) *catcher.Catcher {
	t.Helper()
	c, err := catcher.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// newSink returns a sink that delivers to address. parameters are appended to its URL.
func newSink(t *testing.T, address, parameters string) *Sink {
	t.Helper()
	return newSinkOf(t, Config{URL: "smtp://" + address + "?tls=none&hello=test.example&" + parameters})
}

func newSinkOf(t *testing.T, cfg Config) *Sink {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// simple returns a mail to some recipients, by default to one.
func simple(to ...string) *email.Email {
	if to == nil {
		to = []string{"bob@example.com"}
	}
	return &email.Email{From: "Ada <ada@example.com>", To: to, Subject: "Hello", Text: "Hi"}
}

// delivery returns the first attempt at a mail.
func delivery(t *testing.T, e *email.Email) posthaste.RawDelivery {
	t.Helper()
	m, err := e.Message()
	if err != nil {
		t.Fatal(err)
	}
	body, contentType, err := m.Body()
	if err != nil {
		t.Fatal(err)
	}
	return posthaste.RawDelivery{ID: 1, MessageID: 42, Queue: email.Queue, Attempt: 1, ContentType: contentType, Payload: body, CreatedAt: created}
}

// attemptOnce delivers a mail and decodes the receipt.
func attemptOnce(t *testing.T, s *Sink, d posthaste.RawDelivery) (posthaste.SinkResult, email.Receipt) {
	t.Helper()
	results := s.Deliver(t.Context(), []posthaste.RawDelivery{d})
	if len(results) != 1 {
		t.Fatalf("%d results", len(results))
	}
	var r email.Receipt
	if results[0].Receipt != nil {
		if err := json.Unmarshal(results[0].Receipt, &r); err != nil {
			t.Fatal(err)
		}
	}
	return results[0], r
}

// after returns the next attempt after one with an outcome.
func after(d posthaste.RawDelivery, r posthaste.SinkResult, outcome posthaste.Outcome) posthaste.RawDelivery {
	d.Story = append(slices.Clone(d.Story), posthaste.Attempt{Attempt: d.Attempt, Outcome: outcome, Error: r.Err.Error(), Receipt: r.Receipt})
	d.Attempt++
	return d
}

func wantRetry(t *testing.T, r posthaste.SinkResult, words ...string) {
	t.Helper()
	if r.Err == nil || posthaste.IsPermanent(r.Err) {
		t.Fatalf("got error %v, want one that is retried", r.Err)
	}
	wantWords(t, r.Err, words)
}

func wantPermanent(t *testing.T, r posthaste.SinkResult, words ...string) {
	t.Helper()
	if !posthaste.IsPermanent(r.Err) {
		t.Fatalf("got error %v, want a permanent one", r.Err)
	}
	wantWords(t, r.Err, words)
}

func wantWords(t *testing.T, err error, words []string) {
	t.Helper()
	for _, w := range words {
		// An SMTP code must be a word of its own, because the error contains a random port.
		stands := regexp.MustCompile(`(^|[^0-9:])` + regexp.QuoteMeta(w) + `($|[^0-9])`)
		if !stands.MatchString(err.Error()) {
			t.Errorf("error %q does not contain %q", err, w)
		}
	}
}

func wantOK(t *testing.T, r posthaste.SinkResult) {
	t.Helper()
	if r.Err != nil {
		t.Fatal(r.Err)
	}
}

// statuses writes the answers as "a@x=accepted/250/1 …" (code and attempt).
func statuses(r email.Receipt) string {
	var list []string
	for who, a := range r.Recipients {
		s := fmt.Sprintf("%s=%s/%d/%d", who, a.Status, a.Code, a.Attempt)
		if a.Unsure {
			s += "?"
		}
		list = append(list, s)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// mailed counts the mails that each recipient got.
func mailed(c *catcher.Catcher) map[string]int {
	got := map[string]int{}
	for _, m := range c.Mails() {
		for _, r := range m.To {
			got[r]++
		}
	}
	return got
}

// eventually waits until met is true.
func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !met() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// scripted is a server that answers each line it reads with the next of the
// given lines, and closes at the line after that (or at once, if there is no
// more than a greeting). The first is the greeting.
func scripted(t *testing.T, lines ...string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r := bufio.NewReader(conn)
				for i, line := range lines {
					if i > 0 {
						if _, err := r.ReadString('\n'); err != nil {
							return
						}
					}
					if _, err := fmt.Fprint(conn, line); err != nil {
						return
					}
				}
				if len(lines) > 1 {
					_, _ = r.ReadString('\n')
				}
			}()
		}
	}()
	return l.Addr().String()
}

func TestSink(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		c := startCatcher(t, catcher.Config{})
		address := func(n int) string { return fmt.Sprintf("r%d@example.com", n) }
		make := func(n int) posthaste.RawDelivery {
			d := delivery(t, simple(address(n)))
			d.ID, d.MessageID = posthaste.DeliveryID(n), posthaste.MessageID(n)
			return d
		}
		return sinktest.Fixture{
			Sink:      newSink(t, c.Addr(), ""),
			Delivery:  make,
			Delivered: func(n int) int { return mailed(c)[address(n)] },
			Bad: func(n int) posthaste.RawDelivery {
				d := make(n)
				d.Payload = []byte(`{"from":"ada@example.com","to":["missing"],"text":"x"}`)
				return d
			},
			FailTemporarily: func() { c.Inject(catcher.Fault{Stage: catcher.StageEnd, Code: 451}) },
			FailForGood:     func() { c.Inject(catcher.Fault{Stage: catcher.StageRcpt, Code: 550}) },
			Hang: func() (<-chan struct{}, func()) {
				in := c.Inject(catcher.Fault{Stage: catcher.StageRcpt, Hang: true})
				return in.Reached(), in.Remove
			},
			BreakConnections: c.Cut,
		}
	})
}

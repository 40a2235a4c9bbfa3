package browsertest

import (
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/dashboard"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/server"
	"github.com/posthaste-mq/posthaste/sink/smtp"
	"github.com/posthaste-mq/posthaste/worker"
)

// secret is the token of the tests' operator.
const secret = "the-secret-of-ada"

// shop is a server with a dashboard on PostgreSQL, a worker that sends mails, and a mail server.
type shop struct {
	*testing.T
	engine *postgres.Engine
	mails  *catcher.Catcher
	url    string // of the dashboard
}

func newShop(t *testing.T) *shop {
	t.Helper()
	engine, err := postgres.Open(t.Context(), testpg.New(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	s := &shop{T: t, engine: engine, url: serve(t, engine)}
	s.mails, err = catcher.Start(catcher.Config{})
	s.must(err)
	t.Cleanup(func() { _ = s.mails.Close() })
	s.must(engine.CreateQueue(t.Context(), email.Queue, posthaste.QueueOptions{MaxAttempts: 5, BackoffBase: time.Millisecond, BackoffMax: time.Millisecond}))
	return s
}

// serve serves a store with its dashboard, as the program does, and returns the address.
func serve(t *testing.T, engine posthaste.Store) string {
	t.Helper()
	token, err := server.NewToken("ada", secret, posthaste.ScopeAdmin)
	if err != nil {
		t.Fatal(err)
	}
	api, err := server.New(server.Config{Engine: engine, Tokens: []posthaste.Token{token}, RequireToken: true,
		Mount: map[string]server.Mount{"/dashboard": dashboard.Mount(engine, dashboard.Config{Environment: "production"})}})
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewServer(api)
	t.Cleanup(func() {
		listening.CloseClientConnections() // pages that follow events hold theirs
		listening.Close()
	})
	return listening.URL + "/dashboard"
}

func (s *shop) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// work runs a worker until the test ends. It sends mails, and what else the test adds.
func (s *shop) work(add ...func(*worker.Worker)) {
	s.Helper()
	sink, err := smtp.New(smtp.Config{URL: "smtp://" + s.mails.Addr() + "?tls=none"})
	s.must(err)
	w := worker.New(s.engine, worker.Config{Name: "mailer-1/4711", Version: "2026.11.2", Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	worker.HandleSink(w, email.Queue, sink)
	for _, a := range add {
		a(w)
	}
	stop := testrun.Background(s.T, w.Run)
	s.Cleanup(func() {
		stop()
		_ = sink.Close()
	})
}

// mail sends a mail and returns its id.
func (s *shop) mail(to, subject, reference string) posthaste.MessageID {
	s.Helper()
	m, err := (&email.Email{From: "Corner Shop <shop@example.com>", To: []string{to}, Subject: subject, Text: "Thank you.\n", Reference: reference}).Message()
	s.must(err)
	return s.send(m)[0]
}

func (s *shop) send(messages ...posthaste.Message) []posthaste.MessageID {
	s.Helper()
	ids, err := posthaste.IDs(s.engine.Send(s.Context(), messages...))
	s.must(err)
	return ids
}

// comes waits until a message has a state.
func (s *shop) comes(id posthaste.MessageID, state posthaste.State) {
	s.Helper()
	testrun.Until(s, patience, fmt.Sprintf("message %s is %s", id, state), func() bool {
		m, err := s.engine.Message(s.Context(), id)
		return err == nil && len(m.Subscriptions) > 0 && m.Subscriptions[0].State == state
	})
}

// enter signs in with a tab.
func (s *shop) enter(b *tab) {
	b.Helper()
	b.open(s.url + "/")
	b.click("Token")
	b.types(secret)
	b.follow("Sign in")
	b.sees("Overview")
}

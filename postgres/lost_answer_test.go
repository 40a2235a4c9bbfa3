package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
	"github.com/posthaste-mq/posthaste/postgres"
)

// A response that arrives in part makes the outcome unknown, wherever it is cut.
func TestSendWhoseAnswerArrivesInPart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	url := testpg.New(t)
	for _, n := range []int{1, 2} { // a row, and rows
		proxy := testdb.NewProxy(t, url)
		e := openAt(t, proxy.URL, postgres.WithPoolSize(1))
		queue := fmt.Sprint("q", n)
		if err := e.CreateQueue(ctx, queue, posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
		messages := make([]posthaste.Message, n)
		for i := range messages {
			messages[i] = posthaste.Message{Queue: queue}
		}
		unsure := 0
		for part := 1; ; part += 4 {
			if _, err := e.Send(ctx, messages...); err != nil { // connect and prepare all statements
				t.Fatal(err)
			}
			proxy.CutAnswersAfter("posthaste", part)
			_, err := e.Send(ctx, messages...)
			if err == nil {
				break // the whole response arrived
			}
			if code := posthaste.CodeOf(err); code != posthaste.CodeOutcomeUnknown {
				t.Errorf("%d messages, %d bytes of the answer: code %q: %v", n, part, code, err)
			}
			unsure++
		}
		if unsure < 5 {
			t.Errorf("%d messages: the answer was cut in %d places", n, unsure)
		}
	}
}

// If the connection is lost between a send's commit and its response, the outcome is unknown. If
// the error said that the message was not stored, the sender would send it again.
func TestSendWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	url := testpg.New(t)
	proxy := testdb.NewProxy(t, url)
	e := openAt(t, proxy.URL, postgres.WithPoolSize(1))
	if err := e.CreateQueue(ctx, "q", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 2, 100} {
		messages := make([]posthaste.Message, n)
		for i := range messages {
			messages[i] = posthaste.Message{Queue: "q"}
		}
		if _, err := e.Send(ctx, messages...); err != nil { // prepare all statements
			t.Fatal(err)
		}
		if proxy.CutAnswers("posthaste") == 0 {
			t.Fatal("there is no connection to cut")
		}
		_, err := e.Send(ctx, messages...)
		if err == nil {
			t.Fatal("the answer came through")
		}
		// In a transaction of several round trips the first response is lost, before the
		// commit: both codes are correct.
		if code := posthaste.CodeOf(err); code != posthaste.CodeOutcomeUnknown && (n < 100 || code != posthaste.CodeUnavailable) {
			t.Errorf("%d messages: code %q: %v", n, code, err)
		}
	}
}

// If the server closes the connection after the rows of a transaction instead of ending it, the
// call returns the error.
func TestTerminatedAtTheCommit(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	url := testpg.New(t)
	e := openAt(t, url)
	if err := e.CreateQueue(ctx, "q", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, statement := range []string{
		`create function public.ends() returns trigger language plpgsql as 'begin perform pg_terminate_backend(pg_backend_pid()); return null; end'`,
		`create constraint trigger ends after insert on posthaste.entries_plain deferrable initially deferred for each row execute function public.ends()`,
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 2 { // a row, and rows
		ended := make(chan error, 1)
		go func() {
			_, err := e.Send(ctx, slices.Repeat([]posthaste.Message{{Queue: "q"}}, n+1)...)
			ended <- err
		}()
		select {
		case err := <-ended:
			if posthaste.CodeOf(err) != posthaste.CodeUnavailable {
				t.Errorf("%d messages: %v", n+1, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%d messages: it goes on and on", n+1)
		}
	}
	if _, err := conn.Exec(ctx, `drop trigger ends on posthaste.entries_plain`); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Send(ctx, posthaste.Message{Queue: "q"}); err != nil {
		t.Error(err)
	}
	infos, err := e.Queues(ctx, "q")
	if err != nil || infos[0].Subscriptions[0].Depth > 1 {
		t.Errorf("%+v: %v", infos, err)
	}
}

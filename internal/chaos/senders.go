//go:build unix

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/postgres"
)

// lines is the number of concurrent sequences of sends of a sender.
const lines = 4

// engineSender sends as Go programs do: with a client that gathers messages, in batches, and,
// if supported, in its own transactions, some of which it rolls back.
func engineSender(ctx context.Context, t task, r *history.Recorder) error {
	engine, err := t.open(ctx, slog.Default())
	if err != nil {
		return err
	}
	defer engine.Close()
	client := posthaste.NewClient(engine)
	var pool *pgxpool.Pool // nil without transactions
	if t.Engine == OnPostgres {
		if pool, err = pgxpool.New(ctx, t.URL); err != nil {
			return err
		}
		defer pool.Close()
	}
	sendPlans(ctx, t, r, func(p *planner, d plan) history.Event {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if pool != nil && (d.rollBack || p.random.IntN(3) == 0) {
			return inTransaction(limited, pool, d)
		}
		return answer(posthaste.IDs(client.Send(limited, d.messages()...)))
	})
	return nil
}

// sendPlans sends concurrent sequences of plans until ctx ends. send returns the answer to a plan,
// even if ctx has ended.
func sendPlans(ctx context.Context, t task, r *history.Recorder, send func(p *planner, d plan) history.Event) {
	var all sync.WaitGroup
	for line := range lines {
		all.Go(func() {
			p := newPlanner(t, r, line)
			for ctx.Err() == nil {
				d := p.next(20)
				p.answered(ctx, d, send(p, d))
			}
		})
	}
	all.Wait()
}

func (d plan) messages() []posthaste.Message {
	messages := make([]posthaste.Message, len(d.payloads))
	for i, payload := range d.payloads {
		messages[i] = posthaste.Message{Queue: d.queue, Key: d.key, DedupeKey: d.dedupe, Delay: d.delay, Payload: payload}
	}
	return messages
}

// answer returns the event for a send's result: every error but one means that nothing was
// stored.
func answer(ids []posthaste.MessageID, err error) history.Event {
	switch {
	case err == nil:
		return history.Event{Kind: history.Sent, IDs: ids}
	case posthaste.CodeOf(err) == posthaste.CodeOutcomeUnknown:
		return history.Event{Kind: Unsure, Note: err.Error()}
	default:
		return history.Event{Kind: Refused, Note: err.Error()}
	}
}

// inTransaction sends in a transaction, and rolls it back if the plan says so.
func inTransaction(ctx context.Context, pool *pgxpool.Pool, d plan) history.Event {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return history.Event{Kind: Refused, Note: err.Error()}
	}
	defer func() { _ = tx.Rollback(ctx) }()
	ids, err := posthaste.IDs(postgres.In(tx).Send(ctx, d.messages()...))
	switch {
	case err != nil: // so it is not committed
		return history.Event{Kind: Refused, Note: err.Error()}
	case d.rollBack:
		return history.Event{Kind: RolledBack}
	}
	err = tx.Commit(ctx)
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return history.Event{Kind: history.Sent, IDs: ids}
	case errors.Is(err, pgx.ErrTxCommitRollback), errors.As(err, &refused) && !endsSession(refused.Code):
		return history.Event{Kind: Refused, Note: err.Error()}
	default:
		return history.Event{Kind: Unsure, Note: err.Error()}
	}
}

// endsSession reports whether an error of a commit means that the connection ends, which may
// be after the commit.
func endsSession(sqlstate string) bool {
	return strings.HasPrefix(sqlstate, "57P") || strings.HasPrefix(sqlstate, "08") || sqlstate == "40003"
}

// httpSender sends over HTTP.
func httpSender(ctx context.Context, t task, r *history.Recorder) error {
	client := &http.Client{Timeout: 30 * time.Second}
	sendPlans(ctx, t, r, func(_ *planner, d plan) history.Event {
		return post(context.WithoutCancel(ctx), client, t.Server, d)
	})
	return nil
}

func post(ctx context.Context, client *http.Client, server string, d plan) history.Event {
	type message struct {
		Payload json.RawMessage `json:"payload"`
		Key     string          `json:"key,omitempty"`
		Dedupe  string          `json:"dedupe_key,omitempty"`
		Delay   string          `json:"delay,omitempty"`
	}
	var delay string
	if d.delay > 0 {
		delay = d.delay.String()
	}
	messages := make([]message, len(d.payloads))
	for i, payload := range d.payloads {
		messages[i] = message{payload, d.key, d.dedupe, delay}
	}
	status, body, err := callHTTP(ctx, client, server+"/v1/queues/"+d.queue+"/messages/batch", map[string]any{"messages": messages})
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return history.Event{Kind: Refused, Note: err.Error()}
	}
	var reply struct {
		IDs  []posthaste.MessageID `json:"ids"`
		Code posthaste.Code        `json:"code"`
	}
	if err == nil {
		err = json.Unmarshal(body, &reply)
	}
	switch {
	case err != nil:
		return history.Event{Kind: Unsure, Note: err.Error()}
	case status == http.StatusCreated:
		return history.Event{Kind: history.Sent, IDs: reply.IDs}
	case reply.Code != "" && reply.Code != posthaste.CodeOutcomeUnknown && reply.Code != "internal":
		return history.Event{Kind: Refused, Note: string(reply.Code)}
	default:
		return history.Event{Kind: Unsure, Note: fmt.Sprintf("%d %s", status, body)}
	}
}

// callHTTP posts JSON and reads the answer.
func callHTTP(ctx context.Context, client *http.Client, url string, content any) (status int, body []byte, err error) {
	var sent io.Reader
	if content != nil {
		raw, err := json.Marshal(content)
		if err != nil {
			return 0, nil, err
		}
		sent = bytes.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, sent)
	if err != nil {
		return 0, nil, err
	}
	if content != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

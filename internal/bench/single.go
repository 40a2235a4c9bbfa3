package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

// singles is how many goroutines send, and how many connections insert plainly.
const singles = 32

// single sends one message per call from many goroutines, against as many
// connections that commit one plain row each.
func single(ctx context.Context, r *run) (err error) {
	at, err := r.home(ctx, "single")
	if err != nil {
		return err
	}
	t, err := startTraffic(ctx, r, at, "single", posthaste.QueueOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	p, err := r.plain(ctx, at)
	if err != nil {
		return err
	}
	defer p.close()

	r.begin()
	r.phase("warming up")
	if _, err := t.singles(ctx, min(r.part(warming), time.Second)); err != nil {
		return err
	}
	own, plainly := cost{meter: r.meter()}, cost{meter: r.meter()}
	result := &SingleResult{}
	var handled []float64
	complete := true
	for round := range rounds {
		if round > 0 && r.late() {
			break
		}
		r.phase("plain")
		end := plainly.span()
		rows, took, err := p.measure(ctx, singles, r.part(0.3/rounds))
		if err != nil {
			return err
		}
		end(rows)
		result.PlainRounds = append(result.PlainRounds, rate(rows, took))
		r.phase("single")
		err = r.profiled(round == rounds-1, func() error {
			end := own.span()
			s, err := t.singles(ctx, r.part((1-warming-0.3)/rounds))
			end(s.messages)
			complete = complete && s.complete
			result.SingleRounds = append(result.SingleRounds, rate(s.messages, s.sending))
			handled = append(handled, rate(s.messages, s.whole))
			return err
		})
		if err != nil {
			return err
		}
	}
	t.audit(r, complete)
	throughput, plain := median(result.SingleRounds), median(result.PlainRounds)
	res := r.result
	res.PerSecond, res.Ratio = known(throughput), quotient(throughput, plain)
	result.PlainPerSecond, result.HandledPerSecond = *known(plain), *known(median(handled))
	result.SingleRounds, result.PlainRounds = rounded(result.SingleRounds), rounded(result.PlainRounds)
	result.PlainServerCPU = plainly.serverPerMessage()
	res.SingleResult, res.Messages = result, own.messages
	res.ServerCPU, res.ClientCPU = own.serverPerMessage(), own.clientPerMessage()
	return nil
}

// singles sends one message a call from many goroutines for a while.
func (t *traffic) singles(ctx context.Context, during time.Duration) (stretch, error) {
	message := posthaste.Message{Queue: t.queue, Payload: payload}
	return t.send(ctx, singles, during, true, func(ctx context.Context) (int64, error) {
		_, err := t.client.Send(ctx, message)
		return 1, err
	})
}

func (r *run) plain(ctx context.Context, at home) (floors, error) {
	if r.redis != nil {
		return &pushes{client: r.redis.client, list: r.redis.loopKey("plain"), batch: 1}, nil
	}
	return openPlain(ctx, at.URL)
}

// plain is a table as simple as any, with connections that insert into it.
type plain struct{ conns []*pgx.Conn }

func openPlain(ctx context.Context, url string) (p *plain, err error) {
	p = &plain{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	for i := range singles {
		conn, err := postgres.Connect(ctx, url)
		if err != nil {
			return nil, err
		}
		p.conns = append(p.conns, conn)
		if i == 0 {
			if _, err := conn.Exec(ctx, "create table public.plain (id bigint generated always as identity primary key, payload bytea not null)"); err != nil {
				return nil, fmt.Errorf("the plain table cannot be made: %w", err)
			}
		}
		if _, err := conn.Prepare(ctx, "plain", "insert into public.plain (payload) values ($1)"); err != nil {
			return nil, fmt.Errorf("the plain insert cannot be prepared: %w", err)
		}
	}
	return p, nil
}

func (p *plain) close() {
	for _, c := range p.conns {
		_ = c.Close(context.Background())
	}
}

// turn has nothing to do: rows stay.
func (*plain) turn() {}

// measure inserts and commits one row at a time on n connections.
func (p *plain) measure(ctx context.Context, n int, during time.Duration) (rows int64, took time.Duration, err error) {
	return forAWhile(ctx, n, during, func(ctx context.Context, i int) (int64, error) {
		if _, err := p.conns[i].Exec(ctx, "plain", []byte(payload)); err != nil {
			return 0, fmt.Errorf("the plain insert failed: %w", err)
		}
		return 1, nil
	})
}

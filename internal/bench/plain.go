package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/postgres"
)

// singles is the number of goroutines that send single messages, and of connections that
// insert plain rows.
const singles = 32

// plain is a simple table, with connections that insert into it.
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
				return nil, fmt.Errorf("the plain table cannot be created: %w", err)
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

// turn does nothing: the rows stay.
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

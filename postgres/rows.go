package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// timeOf returns the time in UTC, or zero for null.
func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// exec runs a statement without rows.
func (e *Engine) exec(ctx context.Context, explain func(error) error, sql string, args ...any) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := e.db.Exec(ctx, sql, args...)
	return explain(err)
}

// plain converts ids for pgx; nil stays nil, which is null.
func plain(ids []posthaste.MessageID) []int64 {
	if ids == nil {
		return nil
	}
	out := make([]int64, len(ids))
	for i, id := range ids {
		out[i] = int64(id)
	}
	return out
}

// query runs a statement that reads, and calls scan for each row.
func (e *Engine) query(ctx context.Context, scan func(pgx.Rows) error, sql string, args ...any) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := e.db.Query(ctx, sql, args...)
	if err != nil {
		return readError(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return readError(err)
		}
	}
	return readError(rows.Err())
}

// defaultList is the default number of rows of a list.
const defaultList = 100

func orDefault(limit int) int {
	if limit == 0 {
		return defaultList
	}
	return limit
}

// textOf returns the text, or "" for null.
func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// decode reads JSON that the schema's functions wrote; null leaves into unchanged.
func decode(text *string, into any) error {
	if text == nil {
		return nil
	}
	return json.Unmarshal([]byte(*text), into)
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
}

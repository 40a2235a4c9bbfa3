package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthaste-mq/posthaste"
)

const copySQL = "copy posthaste.entries (pos, queue_id, lane, due_at, content_type, key, kind, reference, headers, terms, trace, payload) from stdin (format binary)"

var copyBegin = statement{
	name: "posthaste_copy_begin",
	sql:  "select queue_id, lanes, positions, step from posthaste.copy_begin($1, $2, $3, $4, $5)",
	oids: []uint32{pgtype.TextOID, pgtype.Int4OID, pgtype.Int4OID, pgtype.BoolOID, pgtype.Int4OID},
}

var begin = statement{name: "posthaste_begin", sql: "begin"}

// copyable reports whether rows can travel by COPY: enough of them, one queue,
// no delays, which only the store's clock can turn into times, and no dedupe keys,
// which only the store knows.
func copyable(rows []row) bool {
	if len(rows) < copyFrom {
		return false
	}
	for i := range rows {
		if rows[i].Queue != rows[0].Queue || rows[i].Delay > 0 || rows[i].DedupeKey != "" {
			return false
		}
	}
	return true
}

// copyOnce sends rows by COPY in a transaction of its own, in two round trips.
func (e *Engine) copyOnce(ctx context.Context, conn *pgx.Conn, rows []row) ([]posthaste.MessageID, error) {
	return e.copyRows(ctx, conn, rows, true)
}

// copyIn sends rows by COPY in the transaction that is open on conn.
func (e *Engine) copyIn(ctx context.Context, conn *pgx.Conn, rows []row) ([]posthaste.MessageID, error) {
	return e.copyRows(ctx, conn, rows, false)
}

func (e *Engine) copyRows(ctx context.Context, conn *pgx.Conn, rows []row, own bool) ([]posthaste.MessageID, error) {
	longest, wake, priority := 0, false, 0
	for i := range rows {
		longest = max(longest, len(rows[i].body))
		priority = max(priority, rows[i].Priority)
		wake = wake || !rows[i].NoWake
	}
	var queue int
	var lanes copyLanes
	var positions []int64
	calls := []bound{{statement: &copyBegin, params: [][]byte{textParam(rows[0].Queue), int4Param(int32(len(rows))),
		int4Param(int32(min(longest, math.MaxInt32))), boolParam(wake), int4Param(int32(priority))}}}
	if own {
		calls = []bound{{statement: &begin, joined: true}, calls[0]}
	}
	err := e.pipeline(ctx, conn, func(_ int, values [][]byte) error {
		queue, lanes, positions = readInt4(values[0]), copyLanes{readInt4(values[1]), readInt4(values[3])}, readInt8Array(values[2])
		return nil
	}, calls...)
	if err == nil && lanes.width == 0 {
		// The queue looks at keys: the function that takes arrays puts its messages in order.
		ids, err := e.sendArrays(ctx, conn, rows)
		if own {
			if err == nil {
				_, err = conn.PgConn().Exec(ctx, "commit").ReadAll()
			} else {
				e.rollback(ctx, conn)
			}
		}
		return ids, err
	}
	if err == nil && len(positions) != len(rows) {
		err = fmt.Errorf("posthaste.copy_begin answered %d positions for %d messages", len(positions), len(rows))
	}
	if err != nil {
		if own {
			e.rollback(ctx, conn)
		}
		return nil, err
	}
	buf := copyBuffers.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= 4<<20 {
			copyBuffers.Put(buf)
		}
	}()
	*buf = appendCopy((*buf)[:0], rows, int32(queue), lanes, positions)
	sql := copySQL
	if own {
		// The commit travels with the COPY.
		sql += "; commit"
	}
	if _, err := conn.PgConn().CopyFrom(ctx, bytes.NewReader(*buf), sql); err != nil {
		if own {
			e.rollback(ctx, conn)
		}
		return nil, err
	}
	ids := make([]posthaste.MessageID, len(positions))
	for i, p := range positions {
		ids[i] = posthaste.MessageID(p)
	}
	return ids, nil
}

// copyLanes says which lanes rows go to: any of width ones, counted from
// priority × step.
type copyLanes struct{ width, step int }

func (l copyLanes) of(priority int) int {
	lane := priority * l.step
	if l.width > 1 {
		lane += rand.IntN(l.width)
	}
	return lane
}

// rollback ends a failed transaction; if it cannot, the pool drops the
// connection because of its state.
func (e *Engine) rollback(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	_, _ = conn.PgConn().Exec(ctx, "rollback").ReadAll()
}

var copyBuffers = sync.Pool{New: func() any { return new([]byte) }}

var copyHeader = append([]byte("PGCOPY\n\xff\r\n\x00"), make([]byte, 8)...)

// appendCopy appends rows in COPY's binary format (PostgreSQL's documentation,
// chapter COPY, "Binary Format").
func appendCopy(b []byte, rows []row, queue int32, lanes copyLanes, positions []int64) []byte {
	be := binary.BigEndian
	text := func(s string) {
		if s == "" {
			b = be.AppendUint32(b, math.MaxUint32)
			return
		}
		b = append(be.AppendUint32(b, uint32(len(s))), s...)
	}
	b = append(b, copyHeader...)
	for i := range rows {
		r := &rows[i]
		b = be.AppendUint16(b, 12)
		b = be.AppendUint64(be.AppendUint32(b, 8), uint64(positions[i]))
		b = be.AppendUint32(be.AppendUint32(b, 4), uint32(queue))
		b = be.AppendUint16(be.AppendUint32(b, 2), uint16(lanes.of(r.Priority)))
		if r.SendAt.IsZero() {
			b = be.AppendUint32(b, math.MaxUint32)
		} else {
			b = be.AppendUint64(be.AppendUint32(b, 8), uint64(microseconds(r.SendAt)))
		}
		text(r.contentType)
		text(r.Key)
		text(r.Kind)
		text(r.Reference)
		if r.headers == nil {
			b = be.AppendUint32(b, math.MaxUint32)
		} else {
			b = append(be.AppendUint32(b, uint32(1+len(r.headers))), 1)
			b = append(b, r.headers...)
		}
		if len(r.Terms) == 0 {
			b = be.AppendUint32(b, math.MaxUint32)
		} else {
			terms := make([][]byte, len(r.Terms))
			for k, t := range r.Terms {
				terms[k] = []byte(t)
			}
			array := arrayParam(pgtype.TextOID, terms)
			b = append(be.AppendUint32(b, uint32(len(array))), array...)
		}
		text(r.trace)
		b = append(be.AppendUint32(b, uint32(len(r.body))), r.body...)
	}
	return be.AppendUint16(b, math.MaxUint16)
}

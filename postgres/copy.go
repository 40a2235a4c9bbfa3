package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthaste-mq/posthaste"
)

// copySQL and copyOrdSQL differ in ord, which only rows of keyed queues have.
const (
	copySQL    = "copy posthaste.entries (pos, queue_id, lane, due_at, content_type, key, kind, reference, headers, terms, trace, payload) from stdin (format binary)"
	copyOrdSQL = "copy posthaste.entries (ord, pos, queue_id, lane, due_at, content_type, key, kind, reference, headers, terms, trace, payload) from stdin (format binary)"
)

// Without the right to write ord keys are of no use.
var copyBegin = statement{
	name: "posthaste_copy_begin",
	sql: "select queue_id, lanes, positions, step, ord, key_lanes from posthaste.copy_begin($1, $2, $3, $4, $5," +
		" case when $6::text[] is not null and has_column_privilege('posthaste.entries', 'ord', 'insert') then $6 end)",
	oids: []uint32{pgtype.TextOID, pgtype.Int4OID, pgtype.Int4OID, pgtype.BoolOID, pgtype.Int4OID, pgtype.TextArrayOID},
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
	queue := rows[0].Queue
	longest, wake, priority := 0, false, 0
	for i := range rows {
		longest = max(longest, len(rows[i].body))
		priority = max(priority, rows[i].Priority)
		wake = wake || !rows[i].NoWake
	}
	var keys []byte
	if _, keyed := e.keyed.Load(queue); keyed {
		keys = keysParam(rows)
	}
	var p copyPlaces
	calls := []bound{{statement: &copyBegin, params: [][]byte{textParam(queue), int4Param(int32(len(rows))),
		int4Param(int32(min(longest, math.MaxInt32))), boolParam(wake), int4Param(int32(priority)), keys}}}
	if own {
		calls = []bound{{statement: &begin, joined: true}, calls[0]}
	}
	err := e.pipeline(ctx, conn, func(_ int, values [][]byte) error {
		p = copyPlaces{queue: uint32(readInt4(values[0])), width: readInt4(values[1]), positions: readInt8Array(values[2]), step: readInt4(values[3]),
			ord: values[4] != nil, order: uint64(readInt8(values[4])), lanes: readInt2Array(values[5])}
		return nil
	}, calls...)
	if err == nil {
		e.noteKeyed(queue, p.width == 0 || p.ord)
	}
	if err == nil && p.width == 0 {
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
	if err == nil && (len(p.positions) != len(rows) || p.ord && len(p.lanes) != len(rows)) {
		err = fmt.Errorf("posthaste.copy_begin answered %d positions and %d lanes for %d messages", len(p.positions), len(p.lanes), len(rows))
	}
	if err != nil {
		if own {
			e.rollback(ctx, conn)
		}
		return nil, err
	}
	if p.ord {
		p.sortByLane()
	}
	buf := copyBuffers.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= 4<<20 {
			copyBuffers.Put(buf)
		}
	}()
	*buf = appendCopy((*buf)[:0], rows, &p)
	sql := copySQL
	if p.ord {
		sql = copyOrdSQL
	}
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
	ids := make([]posthaste.MessageID, len(p.positions))
	for i, pos := range p.positions {
		ids[i] = posthaste.MessageID(pos)
	}
	return ids, nil
}

// noteKeyed keeps whether a queue looks at keys, so that keys are sent along only
// where they are wanted. What is kept may be out of date, which costs no more than
// the function that takes arrays does.
func (e *Engine) noteKeyed(queue string, keyed bool) {
	if _, known := e.keyed.Load(queue); known == keyed {
		return
	}
	if keyed {
		e.keyed.Store(queue, struct{}{})
	} else {
		e.keyed.Delete(queue)
	}
}

// keysParam is the keys of rows for copy_begin; nil if some must be checked by the
// function that takes arrays, since a queue that looks at keys may refuse them.
func keysParam(rows []row) []byte {
	keys := make([][]byte, len(rows))
	for i := range rows {
		if !rows[i].SendAt.IsZero() || rows[i].Priority != 0 {
			return nil
		}
		if rows[i].Key != "" {
			keys[i] = []byte(rows[i].Key)
		}
	}
	return arrayParam(pgtype.TextOID, keys)
}

// copyPlaces is what copy_begin answered: where rows go. In a keyed queue all have
// one order and each a lane of its own; in others any of width lanes will do, counted
// from priority × step.
type copyPlaces struct {
	queue       uint32
	positions   []int64
	width, step int
	ord         bool
	order       uint64
	lanes       []int16
	byLane      []int32 // which row comes when: those of a lane together
}

// sortByLane lets the rows of a lane follow each other, so that they lie on few pages
// and whoever reads the lane reads no more of them than it must. Their positions,
// which tell the order, stay as they are.
func (p *copyPlaces) sortByLane() {
	p.byLane = make([]int32, len(p.lanes))
	for i := range p.byLane {
		p.byLane[i] = int32(i)
	}
	slices.SortStableFunc(p.byLane, func(a, b int32) int { return cmp.Compare(p.lanes[a], p.lanes[b]) })
}

func (p *copyPlaces) lane(i, priority int) uint16 {
	if p.ord {
		return uint16(p.lanes[i])
	}
	lane := priority * p.step
	if p.width > 1 {
		lane += rand.IntN(p.width)
	}
	return uint16(lane)
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
func appendCopy(b []byte, rows []row, p *copyPlaces) []byte {
	be := binary.BigEndian
	text := func(s string) {
		if s == "" {
			b = be.AppendUint32(b, math.MaxUint32)
			return
		}
		b = append(be.AppendUint32(b, uint32(len(s))), s...)
	}
	b = append(b, copyHeader...)
	for n := range rows {
		i := n
		if p.ord {
			i = int(p.byLane[n])
		}
		r := &rows[i]
		if p.ord {
			b = be.AppendUint16(b, 13)
			b = be.AppendUint64(be.AppendUint32(b, 8), p.order)
		} else {
			b = be.AppendUint16(b, 12)
		}
		b = be.AppendUint64(be.AppendUint32(b, 8), uint64(p.positions[i]))
		b = be.AppendUint32(be.AppendUint32(b, 4), p.queue)
		b = be.AppendUint16(be.AppendUint32(b, 2), p.lane(i, r.Priority))
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

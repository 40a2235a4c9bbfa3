package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

const (
	// floorRows is how many rows one COPY of the floor carries.
	floorRows = 10_000
	// floorColumns are those that the engine writes too.
	floorColumns = "pos, queue_id, lane, key, kind, trace, more, payload"
	// slotBits: a position's slot is (pos >> 22) & 15.
	slotBits = 22
)

// floorConnections are the numbers of connections that are tried.
var floorConnections = [...]int{1, 2, 4}

// floor inserts rows into the table of plain entries by COPY and does nothing else.
// Rows are made beforehand with their positions, so that the server need not
// ask the sequence: nothing can insert these rows for less.
type floor struct {
	conns   []*pgx.Conn
	buffers [][]byte
	pos     atomic.Int64
}

func openFloor(ctx context.Context, url string) (f *floor, err error) {
	f = &floor{}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	for range floorConnections[len(floorConnections)-1] {
		conn, err := postgres.Connect(ctx, url)
		if err != nil {
			return nil, err
		}
		f.conns = append(f.conns, conn)
	}
	engine, err := postgres.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	if err := engine.CreateQueue(ctx, "floor", posthaste.QueueOptions{}); err != nil {
		return nil, err
	}
	var queue int32
	if err := f.conns[0].QueryRow(ctx, "select id from posthaste.queue_settings where name = 'floor'").Scan(&queue); err != nil {
		return nil, fmt.Errorf("the floor's queue cannot be read: %w", err)
	}
	for range f.conns {
		f.buffers = append(f.buffers, floorBuffer(queue))
	}
	return f, nil
}

func (f *floor) close() {
	for _, c := range f.conns {
		_ = c.Close(context.Background())
	}
}

// The header of COPY's binary format and, per row, the count of columns and the
// length of the first one stand before a row's position.
const (
	copyHeaderBytes = 19
	beforePosition  = 2 + 4
)

// floorBuffer is a whole COPY in binary format, its positions still open.
func floorBuffer(queue int32) []byte {
	be := binary.BigEndian
	b := append([]byte("PGCOPY\n\xff\r\n\x00"), make([]byte, 8)...)
	for range floorRows {
		b = be.AppendUint16(b, 8)
		b = be.AppendUint64(be.AppendUint32(b, 8), 0)
		b = be.AppendUint32(be.AppendUint32(b, 4), uint32(queue))
		b = be.AppendUint16(be.AppendUint32(b, 2), 0)
		for range 4 { // key to more: null
			b = be.AppendUint32(b, math.MaxUint32)
		}
		b = append(be.AppendUint32(b, uint32(len(payload))), payload...)
	}
	return be.AppendUint16(b, math.MaxUint16)
}

// number writes fresh positions into a buffer.
func (f *floor) number(b []byte) {
	pos := f.pos.Add(floorRows) - floorRows
	step := (len(b) - copyHeaderBytes - 2) / floorRows
	for at := copyHeaderBytes + beforePosition; pos >= 0 && at < len(b)-2; at += step {
		pos++
		binary.BigEndian.PutUint64(b[at:], uint64(pos))
	}
}

// measure inserts through n connections for a while.
func (f *floor) measure(ctx context.Context, n int, during time.Duration) (rows int64, took time.Duration, err error) {
	return forAWhile(ctx, n, during, func(ctx context.Context, i int) (int64, error) {
		f.number(f.buffers[i])
		tag, err := f.conns[i].PgConn().CopyFrom(ctx, bytes.NewReader(f.buffers[i]),
			"copy posthaste.entries_plain ("+floorColumns+") from stdin (format binary)")
		if err != nil {
			return 0, fmt.Errorf("the floor's COPY failed: %w", err)
		}
		return tag.RowsAffected(), nil
	})
}

// turn goes on in the next slot, as the ledger does. What was inserted stays: a table
// that is emptied is filled again in memory and files that are at hand, which the
// messages of the flow beside it never are.
func (f *floor) turn() { f.pos.Store((f.pos.Load()>>slotBits + 1) << slotBits) }

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
	// floorRows is the number of rows of one COPY of the floor.
	floorRows = 10_000
	// floorColumns are the columns that the engine writes too.
	floorColumns = "pos, queue_id, lane, key, kind, trace, more, payload"
	// slotBits: a position's slot is (pos >> 22) & 15.
	slotBits = 22
)

// floorConnections are the numbers of connections that flow tries.
var floorConnections = [...]int{1, 2, 4}

// floor only inserts rows into the table of plain entries by COPY. The rows are prepared with
// their positions, so that the server does not use the sequence: there is no faster way to
// insert these rows.
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

// In COPY's binary format, the header comes before the first row. In each row, the number of
// columns and the length of the first column come before the position.
const (
	copyHeaderBytes = 19
	beforePosition  = 2 + 4
)

// floorBuffer returns a whole COPY in binary format, without positions.
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

// number writes new positions into a buffer.
func (f *floor) number(b []byte) {
	pos := f.pos.Add(floorRows) - floorRows
	step := (len(b) - copyHeaderBytes - 2) / floorRows
	for at := copyHeaderBytes + beforePosition; pos >= 0 && at < len(b)-2; at += step {
		pos++
		binary.BigEndian.PutUint64(b[at:], uint64(pos))
	}
}

// measure inserts through n connections for a time.
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

// turn advances to the next slot, as the ledger does. The rows stay: a table that is emptied
// would be filled again in memory and files that are already in use, and the messages of the
// flow do not have that advantage.
func (f *floor) turn() { f.pos.Store((f.pos.Load()>>slotBits + 1) << slotBits) }

package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Messages use the extended protocol directly: values in binary form without reflection, and
// pipelines with a Sync for each transaction, which pgx's Batch does not offer.

// statement is one SQL function call with its parameters' types.
type statement struct {
	name string
	sql  string
	oids []uint32
}

// bound is a statement with its parameters in binary form. With joined it shares its
// transaction and its response with the next one of the pipeline.
type bound struct {
	statement *statement
	params    [][]byte
	joined    bool
}

var binaryFormat = []int16{pgtype.BinaryFormatCode}

// session runs statements on one connection.
type session struct {
	conn *pgx.Conn
	// pooled says that a pooler in transaction mode may be in between: statements are not
	// prepared, and each transaction takes a round trip.
	pooled bool
}

// pipeline runs the statements in order, each in its own transaction except those joined, and
// passes each row of transaction i to row(i, values), which must not keep values. It takes
// one round trip, or one per transaction behind a pooler. If a transaction fails, the later
// ones still run; the first error is returned.
func (s session) pipeline(ctx context.Context, row func(i int, values [][]byte) error, calls ...bound) error {
	if !s.pooled {
		return s.roundTrip(ctx, row, calls...)
	}
	// A pooler may reassign its server connection after the first response, and another
	// client would then read the second one: send one transaction at a time.
	var first error
	for i := 0; len(calls) > 0; i++ {
		n := 1
		for calls[n-1].joined {
			n++
		}
		err := s.roundTrip(ctx, func(_ int, values [][]byte) error { return row(i, values) }, calls[:n]...)
		if first == nil {
			first = err
		}
		calls = calls[n:]
	}
	return first
}

// roundTrip is pipeline in one round trip.
func (s session) roundTrip(ctx context.Context, row func(i int, values [][]byte) error, calls ...bound) error {
	if !s.pooled {
		for _, c := range calls {
			if _, err := s.conn.Prepare(ctx, c.statement.name, c.statement.sql); err != nil {
				return err
			}
		}
	}
	transactions := 0
	p := s.conn.PgConn().StartPipeline(ctx)
	for _, c := range calls {
		if s.pooled {
			// Poolers in transaction mode support the unnamed statement only.
			p.SendQueryParams(c.statement.sql, c.params, c.statement.oids, binaryFormat, binaryFormat)
		} else {
			p.SendQueryPrepared(c.statement.name, c.params, binaryFormat, binaryFormat)
		}
		if c.joined {
			continue
		}
		p.SendPipelineSync()
		transactions++
	}
	if err := p.Flush(); err != nil {
		return closePipeline(p, err)
	}
	return closePipeline(p, readResults(p, transactions, row))
}

// readResults reads the results of the transactions and returns the first error.
func readResults(p *pgconn.Pipeline, transactions int, row func(i int, values [][]byte) error) error {
	var first error
	for i := 0; i < transactions; {
		results, err := p.GetResults()
		if err != nil {
			var pg *pgconn.PgError
			if !errors.As(err, &pg) {
				if first == nil {
					first = err
				}
				// The connection is gone. After an earlier error err only says that this
				// request was not sent.
				return first
			}
			if first == nil {
				first = err
			}
			continue
		}
		switch r := results.(type) {
		case *pgconn.ResultReader:
			for r.NextRow() {
				if first != nil {
					continue
				}
				first = row(i, r.Values())
			}
			if _, err := r.Close(); err != nil && first == nil {
				first = err
			}
		case *pgconn.PipelineSync:
			i++
		case nil:
			// An error ended the transaction and the connection with it. There are no
			// more results, and reading on would never return.
			if first == nil {
				first = io.ErrUnexpectedEOF
			}
			return first
		}
	}
	return first
}

// closePipeline closes the pipeline and returns err, or else the error of closing. After err
// the error of closing is dropped: on a lost connection it says that nothing was sent, which
// means the Close message, and callers would apply it to the statements.
func closePipeline(p *pgconn.Pipeline, err error) error {
	if closed := p.Close(); err == nil {
		return closed
	}
	return err
}

// Parameters in binary form.

func int8Param(v int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(v)) }
func int2Param(v int16) []byte { return binary.BigEndian.AppendUint16(nil, uint16(v)) }
func int4Param(v int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }
func float8(v float64) []byte  { return binary.BigEndian.AppendUint64(nil, math.Float64bits(v)) }
func float4(v float32) []byte  { return binary.BigEndian.AppendUint32(nil, math.Float32bits(v)) }

// jsonParam passes JSON as jsonb, whose binary form begins with its version.
func jsonParam(text []byte) []byte { return append([]byte{jsonbVersion}, text...) }

func textParam(s string) []byte { return append([]byte{}, s...) }

func boolParam(v bool) []byte {
	if v {
		return []byte{1}
	}
	return []byte{0}
}

// timestamptz counts microseconds since 2000.
var epoch2000 = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func timeParam(t time.Time) []byte { return int8Param(microseconds(t)) }

func microseconds(t time.Time) int64 { return t.UnixMicro() - epoch2000.UnixMicro() }

// bitsParam is a bit varying of the given length. Its first bit is the highest of bits[0].
func bitsParam(length int, bits []byte) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(bits)), uint32(length))
	return append(b, bits...)
}

// arrayParam is a one-dimensional array; a nil element is null.
func arrayParam(element uint32, elements [][]byte) []byte {
	size := 0
	for _, e := range elements {
		size += len(e)
	}
	return arrayOf(element, len(elements), size, func(b []byte, i int) ([]byte, bool) { return append(b, elements[i]...), elements[i] != nil })
}

// arrayOf is an array of n elements. add appends element i to b, or returns false if it is
// null. size is an estimate of the elements' total size in bytes.
func arrayOf(element uint32, n, size int, add func(b []byte, i int) ([]byte, bool)) []byte {
	b := make([]byte, 12, 20+4*n+size)
	binary.BigEndian.PutUint32(b[8:], element)
	if n == 0 {
		return b
	}
	b[3] = 1 // one dimension
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	b = binary.BigEndian.AppendUint32(b, 1)
	for i := range n {
		start := len(b) + 4
		longer, given := add(append(b, 0, 0, 0, 0), i)
		if given {
			b = longer
			binary.BigEndian.PutUint32(b[start-4:], uint32(len(b)-start))
		} else {
			b = binary.BigEndian.AppendUint32(b, math.MaxUint32)
			b[7] = 1 // has nulls
		}
	}
	return b
}

// Values in binary form. A nil value is null and reads as zero.

func readInt8(v []byte) int64 {
	if len(v) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(v))
}

func readInt4(v []byte) int {
	if len(v) != 4 {
		return 0
	}
	return int(int32(binary.BigEndian.Uint32(v)))
}

func readInt2(v []byte) int {
	if len(v) != 2 {
		return 0
	}
	return int(int16(binary.BigEndian.Uint16(v)))
}

func readFloat8(v []byte) float64 {
	if len(v) != 8 {
		return 0
	}
	return math.Float64frombits(binary.BigEndian.Uint64(v))
}

func readBool(v []byte) bool { return len(v) == 1 && v[0] == 1 }

func readTime(v []byte) time.Time {
	if len(v) != 8 {
		return time.Time{}
	}
	return time.UnixMicro(readInt8(v) + epoch2000.UnixMicro()).UTC()
}

// readJSON strips jsonb's version byte.
func readJSON(v []byte) []byte {
	if len(v) == 0 {
		return nil
	}
	return v[1:]
}

// readInt8Array reads a one-dimensional array without nulls.
func readInt8Array(v []byte) []int64 {
	if len(v) < 20 {
		return nil
	}
	n := int(binary.BigEndian.Uint32(v[12:]))
	if len(v) < 20+12*n {
		return nil
	}
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(binary.BigEndian.Uint64(v[20+12*i+4:]))
	}
	return out
}

package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

var noteStatement = statement{
	name: "posthaste_note",
	sql:  "select n, recorded, cancelled from posthaste.note($1, $2, $3, $4, $5, $6::bigint * interval '1 microsecond')",
	oids: []uint32{pgtype.Int8ArrayOID, pgtype.JSONBArrayOID, pgtype.Float4ArrayOID, pgtype.TextArrayOID, pgtype.TextArrayOID, pgtype.Int8OID},
}

// note records the notes of an ExtendRequest in one statement.
func (e *Engine) note(ctx context.Context, req posthaste.ExtendRequest) ([]posthaste.SettleResult, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	results := make([]posthaste.SettleResult, len(req.Deliveries))
	var of []int // the index of each note that is sent
	var ids, checkpoints, progress, texts, logs [][]byte
	for i := range req.Notes {
		n := &req.Notes[i]
		results[i].Delivery = req.Deliveries[i]
		if results[i].Err = checkNote(n); results[i].Err != nil {
			continue
		}
		of = append(of, i)
		ids = append(ids, int8Param(int64(req.Deliveries[i])))
		var checkpoint, done, text, log []byte
		if n.Checkpoint != nil {
			checkpoint = jsonParam(n.Checkpoint)
		}
		if n.Progress != nil {
			done, text = float4(float32(*n.Progress)), textParam(n.ProgressText)
		}
		if n.Log != "" {
			log = textParam(n.Log)
		}
		checkpoints, progress, texts, logs = append(checkpoints, checkpoint), append(progress, done), append(texts, text), append(logs, log)
	}
	var lease []byte
	if req.Lease > 0 {
		lease = int8Param(req.Lease.Microseconds())
	}
	if len(of) == 0 {
		return results, nil
	}
	err := e.call(ctx, func(_ int, v [][]byte) error {
		r := &results[of[readInt4(v[0])-1]]
		if v[1] == nil {
			r.Err = &posthaste.Error{Code: posthaste.CodeUnavailable, Message: fmt.Sprintf("delivery %d cannot be noted while an open transaction notes or settles it", r.Delivery),
				Hint: "end that transaction, then try again; inside it use its own checkpoint"}
		}
		r.Settled, r.Cancelled = readBool(v[1]), readBool(v[2])
		return nil
	}, bound{statement: &noteStatement, params: [][]byte{arrayParam(pgtype.Int8OID, ids), arrayParam(pgtype.JSONBOID, checkpoints), arrayParam(pgtype.Float4OID, progress),
		arrayParam(pgtype.TextOID, texts), arrayParam(pgtype.TextOID, logs), lease}})
	if err != nil {
		return nil, writeError(err)
	}
	return results, nil
}

func checkNote(n *posthaste.Note) error {
	if err := n.Check(); err != nil || n.Checkpoint == nil {
		return err
	}
	return jsoncheck.Check("checkpoint", n.Checkpoint)
}

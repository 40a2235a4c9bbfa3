package nats

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// publish publishes a message and returns the sequence that the stream gave it. Package jetstream does
// the same and takes twice the time.
func (e *Engine) publish(ctx context.Context, m *natsgo.Msg) (seq uint64, err error) {
	reply, err := e.conn.RequestMsgWithContext(ctx, m)
	if err != nil {
		return 0, err
	}
	return sequenceIn(reply.Data)
}

// sequenceIn reads the answer of a stream.
func sequenceIn(data []byte) (seq uint64, err error) {
	if seq = usualSequence(data); seq != 0 {
		return seq, nil
	}
	var answer struct {
		Stream string              `json:"stream"`
		Seq    uint64              `json:"seq"`
		Error  *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(data, &answer); {
	case err != nil:
		return 0, err
	case answer.Error != nil:
		return 0, answer.Error
	case answer.Stream == "":
		return 0, errors.New("nats: the answer to a message names no stream")
	}
	return answer.Seq, nil
}

// usualSequence reads the usual answer, {"stream":"name", "seq":1}, and returns 0 for another one.
func usualSequence(data []byte) uint64 {
	rest, found := bytes.CutPrefix(data, []byte(`{"stream":"`))
	name, rest, ends := bytes.Cut(rest, []byte(`"`))
	if !found || !ends || len(name) == 0 || !plain(name) {
		return 0
	}
	rest, found = bytes.CutPrefix(rest, []byte(","))
	rest, follows := bytes.CutPrefix(bytes.TrimLeft(rest, " "), []byte(`"seq":`))
	digits, ends := bytes.CutSuffix(rest, []byte("}"))
	if !found || !follows || !ends {
		return 0
	}
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil || digits[0] == '0' {
		return 0
	}
	return seq
}

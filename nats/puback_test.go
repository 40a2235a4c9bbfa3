package nats

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

func TestAnswersOfStreams(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer string
		seq    uint64
		usual  bool
	}{
		{`{"stream":"a", "seq":17}`, 17, true},
		{`{"stream":"a","seq":18446744073709551615}`, 1<<64 - 1, true},
		{`{"stream":"a", "seq":17,"duplicate": true}`, 17, false},
		{`{"stream":"a","domain":"d", "seq":3}`, 3, false},
		{`{"stream":"a", "seq":0}`, 0, false},
		{`{"stream":"a", "seq":5,"batch":"b","count":5}`, 5, false},
	} {
		seq, err := sequenceIn([]byte(c.answer))
		if err != nil || seq != c.seq || (usualSequence([]byte(c.answer)) != 0) != c.usual {
			t.Errorf("%s: %d, %v", c.answer, seq, err)
		}
	}
	for _, answer := range []string{``, `{`, `{}`, `{"stream":"a", "seq":1`, `{"stream":"a""seq":1}`, `{"stream":"a", "seq":-1}`, `{"stream":"a", "seq":01}`, `{"stream":"a", "seq":}`, `{"stream":"", "seq":1}`, `{"stream":"a", "seq":18446744073709551616}`} {
		if seq, err := sequenceIn([]byte(answer)); err == nil {
			t.Errorf("%s: %d", answer, seq)
		}
	}
	_, err := sequenceIn([]byte(`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 1"},"stream":"a","seq":0}`))
	if !errors.Is(err, errWrongSequence) {
		t.Errorf("an error: %v", err)
	}
}

// FuzzSequence checks that an answer that is read by hand is read as encoding/json does.
func FuzzSequence(f *testing.F) {
	f.Add(`{"stream":"a", "seq":17}`)
	f.Add(`{"stream":"a""seq":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		seq := usualSequence([]byte(text))
		if seq == 0 {
			return
		}
		var answer jetstream.PubAck
		if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Sequence != seq {
			t.Errorf("%q has sequence %d, read as %d: %v", text, answer.Sequence, seq, err)
		}
	})
}

//go:build unix

package chaos

import (
	"encoding/binary"
	"encoding/json"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// amqpFrame returns a frame as it is on the wire.
func amqpFrame(kind byte, payload ...byte) []byte {
	f := binary.BigEndian.AppendUint32([]byte{kind, 0, 1}, uint32(len(payload)))
	return append(append(f, payload...), 0xCE)
}

// amqpPublish returns a published message with two bodies.
func amqpPublish(t *testing.T, token, id, attempt string) (all []byte) {
	t.Helper()
	body, err := json.Marshal(newContent(token, 0))
	if err != nil {
		t.Fatal(err)
	}
	head := binary.BigEndian.AppendUint64([]byte{0, 60, 0, 0}, uint64(len(body)))
	for _, h := range [][2]string{{headerID, id}, {headerAttempt, attempt}} {
		head = append(append(head, byte(len(h[0]))), h[0]+"S"...)
		head = append(binary.BigEndian.AppendUint32(head, uint32(len(h[1]))), h[1]...)
	}
	all = append(all, amqpFrame(methodFrame, append(basicPublish, 0, 0, 0)...)...)
	all = append(all, amqpFrame(headerFrame, head...)...)
	all = append(all, amqpFrame(bodyFrame, body[:5]...)...)
	return append(all, amqpFrame(bodyFrame, body[5:]...)...)
}

func amqpConfirm(method []byte, tag uint64, several byte) []byte {
	return amqpFrame(methodFrame, append(binary.BigEndian.AppendUint64(method[:4:4], tag), several)...)
}

// Data on a connection to the broker is recorded by its meaning, in whatever pieces it comes,
// and the messages in flight of a killed relay have no end.
func TestWiretap(t *testing.T) {
	t.Parallel()
	for _, piece := range []int{1, 7, 100_000} {
		for _, killed := range []bool{false, true} {
			dir := t.TempDir()
			r, err := history.Open(dir, "relay-1")
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			w := &wiretap{r: r, open: map[uint64]seen{}, killed: func() bool { return killed }}
			sent := []byte("AMQP\x00\x00\x09\x01")
			for _, token := range []string{"a", "b", "c", "d"} {
				sent = append(sent, amqpPublish(t, token, "7", "2")...)
			}
			for len(sent) > 0 {
				n := min(piece, len(sent))
				w.asked(sent[:n])
				sent = sent[n:]
			}
			answers := append(amqpConfirm(basicAck, 2, 1), amqpConfirm(basicNack, 3, 0)...)
			for len(answers) > 0 {
				n := min(piece, len(answers))
				w.answered(answers[:n])
				answers = answers[n:]
			}
			w.over()
			events, err := history.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			got := map[history.Kind]string{}
			for _, e := range events {
				if e.ID != 7 || e.Attempt != 2 || e.Process != "relay-1" {
					t.Errorf("recorded %+v", e)
				}
				got[e.Kind] += e.Token
			}
			failed := "cd"
			if killed {
				failed = "c"
			}
			if got[history.Started] != "abcd" || len(got[history.Handled]) != 2 || got[history.Failed] != failed {
				t.Errorf("in pieces of %d, killed %t: %v", piece, killed, got)
			}
		}
	}
}

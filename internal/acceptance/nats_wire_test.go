//go:build unix

package acceptance

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/faultproxy"
)

// wiretap keeps what a client sends to its server.
type wiretap struct {
	mu   sync.Mutex
	sent bytes.Buffer
}

// before starts a proxy before a server, and returns its address.
func (w *wiretap) before(t *testing.T, server string) string {
	return faultproxy.Start(t, server, func(piece []byte) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.sent.Write(piece)
		return false
	}).Address()
}

func (w *wiretap) length() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent.Len()
}

// published is a message to the subject of an acknowledgment: $JS.ACK, stream, consumer, how often
// the entry was delivered, the sequence of the entry, and more.
var published = regexp.MustCompile(`PUB \$JS\.ACK\.[^ ]+`)

// acks returns the acknowledgments, of any kind, that were sent after a length and belong to the first
// deliveries of entries up to a sequence.
func (w *wiretap) acks(after int, last uint64) (subjects []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, found := range published.FindAll(w.sent.Bytes()[after:], -1) {
		parts := strings.Split(string(found), ".")
		// Some servers put domain and account before the stream.
		at := 4
		if len(parts) > 9 {
			at = 6
		}
		sequence, err := strconv.ParseUint(parts[at+1], 10, 64)
		if err == nil && parts[at] == "1" && sequence <= last {
			subjects = append(subjects, string(found))
		}
	}
	return subjects
}

// lastSequence returns the sequence of a queue's last entry.
func (n *natsStage) lastSequence(queue string) uint64 {
	n.Helper()
	stream, err := n.js.Stream(n.ctx, n.stream(queue))
	n.must(err)
	return stream.CachedInfo().State.LastSeq
}

// freeze stops a child, or lets it go on.
func freeze(s *stage, c *child, on bool) {
	s.Helper()
	signal := syscall.SIGCONT
	if on {
		signal = syscall.SIGSTOP
	}
	s.must(c.cmd.Process.Signal(signal))
}

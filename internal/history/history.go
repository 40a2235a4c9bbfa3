// Package history records what happened to messages, as each process saw it,
// and checks what must hold. Receivers are asked, never the store: a message
// that nobody recorded was lost, whatever the ledger thinks of it.
//
// Every process appends to a file of its own, one JSON object a line and each
// line by one write, so a SIGKILL loses nothing that was recorded before it.
// Times are of the machine's monotonic clock, so that those of several
// processes can be compared.
package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/posthaste-mq/posthaste"
)

// Kind says what a process saw.
type Kind string

// The kinds.
const (
	Sent    Kind = "sent"    // the send returned this id
	Started Kind = "started" // a handler got the message
	Handled Kind = "handled" // a handler is done with it, just before it says so
	Failed  Kind = "failed"  // a handler is about to return an error
)

// Event is one line of a history.
type Event struct {
	Kind Kind `json:"kind"`
	// ID is the message's; 0 where nobody knows it, or where it is about none.
	ID posthaste.MessageID `json:"id,omitzero"`
	// Attempt is what the delivery said, from 1; 0 for Sent.
	Attempt int `json:"attempt,omitempty"`
	// Alone is what the delivery said.
	Alone bool `json:"alone,omitempty"`
	// At is when, as [Now] tells it. [Recorder.Record] fills it in.
	At time.Duration `json:"at"`
	// Process is who recorded it. [Recorder.Record] fills it in.
	Process string `json:"process"`
	// Note is free text, such as the payload.
	Note string `json:"note,omitempty"`
	// Token is the sender's own name for what one transaction sends, and Part
	// the message's place in that: they are known before there is an id.
	Token string `json:"token,omitempty"`
	Part  int    `json:"part,omitempty"`
	Queue string `json:"queue,omitempty"`
	// Subscription is whose delivery it is; empty for the one that every queue has.
	Subscription string `json:"subscription,omitempty"`
	Key          string `json:"key,omitempty"`
	// Count is how many there are, such as messages of a token.
	Count int `json:"count,omitempty"`
	// IDs are those of a token's messages, in order.
	IDs []posthaste.MessageID `json:"ids,omitempty"`
	// Whom is the process that something was done to.
	Whom string `json:"whom,omitempty"`
	// Took is how long it lasted, up to At.
	Took time.Duration `json:"took,omitempty"`
}

// Now is the machine's monotonic clock: the same for all its processes.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(fmt.Sprintf("the monotonic clock cannot be read: %v", err))
	}
	return time.Duration(t.Nano())
}

// suffix is what the files of histories end in.
const suffix = ".history"

// Recorder writes one process's history. It is safe for concurrent use.
type Recorder struct {
	process string
	mu      sync.Mutex
	file    *os.File
	count   map[Kind]int
	changed chan struct{}
}

// Open begins the history of a process in dir. No two processes may have the
// same name there.
func Open(dir, process string) (*Recorder, error) {
	file, err := os.OpenFile(filepath.Join(dir, process+suffix), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("no file for the history of %s: %w", process, err)
	}
	return &Recorder{process: process, file: file, count: map[Kind]int{}, changed: make(chan struct{})}, nil
}

// Record adds an event. When it returns, the event outlives the process. A
// history with holes proves nothing, so it panics if the event cannot be
// written.
func (r *Recorder) Record(e Event) {
	e.At, e.Process = Now(), r.process
	line, err := json.Marshal(e)
	if err != nil {
		panic(fmt.Sprintf("an event cannot be encoded: %v", err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.file.Write(append(line, '\n')); err != nil {
		panic(fmt.Sprintf("an event cannot be written: %v", err))
	}
	r.count[e.Kind]++
	close(r.changed)
	r.changed = make(chan struct{})
}

// Count returns how many events of a kind were recorded so far, and a channel
// that is closed at the next event.
func (r *Recorder) Count(kind Kind) (int, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[kind], r.changed
}

// Close ends the history.
func (r *Recorder) Close() error { return r.file.Close() }

// Read returns all histories in dir, in the order of time. A last line that
// its process did not finish is left out: it was not recorded yet.
func Read(dir string) ([]Event, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil, err
	}
	var all []Event
	for _, name := range names {
		events, err := readFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, events...)
	}
	slices.SortStableFunc(all, func(a, b Event) int { return int(a.At - b.At) })
	return all, nil
}

func readFile(name string) (events []Event, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Split(whole)
	for lines.Scan() {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s: line %d is no event: %w", name, len(events)+1, err)
		}
		events = append(events, e)
	}
	return events, lines.Err()
}

// whole splits into lines and drops a last one without its end.
func whole(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}

// Merge joins the errors of several checks, each said once.
func Merge(faults ...[]Fault) error {
	var all []error
	for _, list := range faults {
		for _, f := range list {
			all = append(all, f)
		}
	}
	return errors.Join(all...)
}

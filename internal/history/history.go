// Package history records what happened to messages as each process saw it, and checks the
// guarantees. It asks the receivers and never the store: a message that no receiver recorded
// was lost, whatever the ledger says.
//
// Every process appends to its own file, one JSON object per line and each line with one
// write, so a SIGKILL loses no recorded event. Times are those of the machine's monotonic
// clock, so that the times of several processes can be compared.
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

	"github.com/posthaste-mq/posthaste"
)

// Kind is the kind of an event.
type Kind string

// The kinds.
const (
	Sent    Kind = "sent"    // the send returned this id
	Started Kind = "started" // a handler got the message
	Handled Kind = "handled" // a handler has finished the message and is about to return
	Failed  Kind = "failed"  // a handler is about to return an error
)

// Event is one line of a history.
type Event struct {
	Kind Kind `json:"kind"`
	// ID is the message's id; 0 if it is unknown or the event is not about a message.
	ID posthaste.MessageID `json:"id,omitzero"`
	// Attempt is the delivery's attempt, from 1; 0 for Sent.
	Attempt int `json:"attempt,omitempty"`
	// Alone is the delivery's field of that name.
	Alone bool `json:"alone,omitempty"`
	// At is the time by [Now]. [Recorder.Record] sets it.
	At time.Duration `json:"at"`
	// Process is the recording process. [Recorder.Record] sets it.
	Process string `json:"process"`
	// Note is free text, such as the payload.
	Note string `json:"note,omitempty"`
	// Token is the sender's name for the messages of one transaction, and Part the message's
	// index among them. They are known before there is an id.
	Token string `json:"token,omitempty"`
	Part  int    `json:"part,omitempty"`
	Queue string `json:"queue,omitempty"`
	// Subscription is the delivery's subscription; empty for the one that every queue has.
	Subscription string `json:"subscription,omitempty"`
	Key          string `json:"key,omitempty"`
	// Count is a number, such as the messages of a token.
	Count int `json:"count,omitempty"`
	// IDs are the ids of a token's messages, in order.
	IDs []posthaste.MessageID `json:"ids,omitempty"`
	// Whom is the process that was affected.
	Whom string `json:"whom,omitempty"`
	// Took is the duration, up to At.
	Took time.Duration `json:"took,omitempty"`
}

// suffix is the extension of history files.
const suffix = ".history"

// Recorder writes one process's history. It is safe for concurrent use.
type Recorder struct {
	process string
	mu      sync.Mutex
	file    *os.File
	count   map[Kind]int
	changed chan struct{}
	written int64 // number of events

	syncing sync.Mutex // held during an fsync
	synced  int64      // number of events that are on disk; guarded by syncing
}

// Open starts the history of a process in dir. Names must be unique there.
func Open(dir, process string) (*Recorder, error) {
	file, err := os.OpenFile(filepath.Join(dir, process+suffix), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("no file for the history of %s: %w", process, err)
	}
	return &Recorder{process: process, file: file, count: map[Kind]int{}, changed: make(chan struct{})}, nil
}

// Record adds an event. When it returns, the event outlives the process. It panics if the
// event cannot be written, because a history with gaps proves nothing.
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
	r.written++
	close(r.changed)
	r.changed = make(chan struct{})
}

// Sync returns when every event that was recorded before the call is on disk. Concurrent calls
// share an fsync. Like [Recorder.Record] it panics if that fails.
func (r *Recorder) Sync() {
	wanted := r.events()
	r.syncing.Lock()
	defer r.syncing.Unlock()
	if r.synced >= wanted {
		return
	}
	covered := r.events()
	if err := r.file.Sync(); err != nil {
		panic(fmt.Sprintf("the history cannot be synced: %v", err))
	}
	r.synced = covered
}

func (r *Recorder) events() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written
}

// Count returns the number of recorded events of a kind, and a channel that is closed at the
// next event.
func (r *Recorder) Count(kind Kind) (int, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[kind], r.changed
}

// Close ends the history.
func (r *Recorder) Close() error { return r.file.Close() }

// Read returns all histories in dir, ordered by time. An incomplete last line is ignored,
// because its event was not recorded yet.
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
			return nil, fmt.Errorf("%s: line %d is not an event: %w", name, len(events)+1, err)
		}
		events = append(events, e)
	}
	return events, lines.Err()
}

// whole splits into lines and drops an incomplete last line.
func whole(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}

// Merge joins the errors of several checks and removes duplicates.
func Merge(faults ...[]Fault) error {
	var all []error
	for _, list := range faults {
		for _, f := range list {
			all = append(all, f)
		}
	}
	return errors.Join(all...)
}

package prove

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// place is a message: its send, and its index there.
type place struct {
	token string
	part  int
}

// follower reads the histories while they grow, to show the progress and to know when everything
// is handled. The account at the end does not use it.
type follower struct {
	dir     string
	read    map[string]int64         // bytes read, by file
	intents map[string]time.Duration // begins of sends, by token
	open    map[string]int           // calls that have not ended, and sends without an answer, by process
	due     map[place]bool           // acknowledged to the sender and not handled
	handled map[place]bool
	// newest is the latest begin of a send of which a message was handled.
	newest time.Duration
}

func newFollower(dir string) *follower {
	return &follower{dir: dir, read: map[string]int64{}, intents: map[string]time.Duration{}, open: map[string]int{},
		due: map[place]bool{}, handled: map[place]bool{}}
}

// poll reads the lines that were added since the last call.
func (f *follower) poll() error {
	names, err := filepath.Glob(filepath.Join(f.dir, "*.history"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := f.pollFile(name); err != nil {
			return err
		}
	}
	return nil
}

// pollFile reads the whole lines that were added to a file.
func (f *follower) pollFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(f.read[name], io.SeekStart); err != nil {
		return err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	for {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		if !whole {
			return nil
		}
		var e history.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		f.add(e)
		f.read[name] += int64(len(line)) + 1
		text = rest
	}
}

func (f *follower) add(e history.Event) {
	switch e.Kind {
	case Intent:
		f.intents[e.Token] = e.At
		f.open[e.Process] += e.Count
	case history.Sent:
		for part := range e.Count {
			if p := (place{e.Token, part}); !f.handled[p] {
				f.due[p] = true
			}
		}
		f.open[e.Process] -= e.Count
	case Refused, RolledBack, Unknown:
		f.open[e.Process] -= e.Count
	case history.Started:
		f.open[e.Process]++
	case history.Handled:
		f.open[e.Process]--
		p := place{e.Token, e.Part}
		f.handled[p] = true
		delete(f.due, p)
		f.newest = max(f.newest, f.intents[e.Token]) // 0 if its sender's file was read before
	}
}

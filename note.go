package posthaste

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"
)

// Limits of what a handler notes.
const (
	// MaxCheckpointBytes bounds a checkpoint, as JSON.
	MaxCheckpointBytes = 64 << 10
	// MaxResultBytes bounds a result, as JSON.
	MaxResultBytes = 64 << 10
	// MaxLogBytes bounds the logs of all attempts of a message together. The oldest lines are
	// dropped first.
	MaxLogBytes = 64 << 10
	// MaxProgressChars bounds the text of a progress, in characters.
	MaxProgressChars = 1000
)

// Note is what is recorded about a delivery while it is handled.
type Note struct {
	// Checkpoint, if not nil, is JSON that the next attempt gets.
	Checkpoint json.RawMessage
	// Progress, if not nil, is the part of the work that is done, 0 to 1.
	Progress *float64
	// ProgressText describes Progress. It needs Progress.
	ProgressText string
	// Log has log lines, each with a newline at its end.
	Log string
}

// Check returns a [CodeInvalid] or [CodeTooLarge] error if the note cannot be recorded. Engines
// also check that Checkpoint is JSON that they can store.
func (n *Note) Check() error {
	switch {
	case n.Progress == nil && n.ProgressText != "":
		return Invalidf("progress_text", "progress_text needs progress")
	case n.Checkpoint == nil && n.Progress == nil && n.Log == "":
		return Invalidf("checkpoint", "a note needs a checkpoint, a progress or log lines")
	case len(n.Checkpoint) > MaxCheckpointBytes:
		return &Error{Code: CodeTooLarge, Field: "checkpoint", Message: fmt.Sprintf("the checkpoint has %d bytes; at most %d are allowed", len(n.Checkpoint), MaxCheckpointBytes),
			Hint: "store large data elsewhere, and its key in the checkpoint"}
	case n.Progress != nil && !(*n.Progress >= 0 && *n.Progress <= 1):
		return Invalidf("progress", "progress must be 0 to 1, got %v", *n.Progress)
	case utf8.RuneCountInString(n.ProgressText) > MaxProgressChars:
		return Invalidf("progress_text", "progress_text must have at most %d characters, got %d", MaxProgressChars, utf8.RuneCountInString(n.ProgressText))
	case len(n.Log) > MaxLogBytes:
		return &Error{Code: CodeTooLarge, Field: "log", Message: fmt.Sprintf("the log lines have %d bytes; at most %d are allowed", len(n.Log), MaxLogBytes)}
	}
	for field, text := range map[string]string{"progress_text": n.ProgressText, "log": n.Log} {
		if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
			return Invalidf(field, "%s must be UTF-8 without NUL", field)
		}
	}
	return nil
}

// Notebook records what the handler of a delivery notes. The runtime that calls handlers
// implements it; see [RawDelivery.SetNotebook].
type Notebook interface {
	// Note records a note. The error is [CodeConflict] if the delivery no longer belongs to
	// this process.
	Note(ctx context.Context, delivery DeliveryID, note Note) error
	// SetResult keeps the result until the delivery is settled.
	SetResult(delivery DeliveryID, result json.RawMessage) error
	// Log keeps a log line.
	Log(delivery DeliveryID, line []byte)
}

// SetNotebook sets what the methods Checkpoint, Progress, SetResult and Logger write to.
func (d *RawDelivery) SetNotebook(n Notebook) { d.notebook = n }

func (d RawDelivery) book() (Notebook, error) {
	if d.notebook == nil {
		return nil, &Error{Code: CodeUnsupported, Message: fmt.Sprintf("delivery %d was not handed to a handler by a worker", d.ID),
			Hint: "use Engine.Extend with Notes"}
	}
	return d.notebook, nil
}

// Checkpoint stores how far the handler has come, as JSON of at most [MaxCheckpointBytes]. The
// next attempt gets it from [Resume], whatever ends this one: an error, the end of the
// process, or a dead letter that is replayed. A nil error means that it is stored. The error is
// [CodeConflict] if the delivery no longer belongs to this worker; the handler's context then
// ends with that error as its cause. After any other error the checkpoint may or may not be
// stored. It extends no lease: the worker's heartbeat does.
func (d RawDelivery) Checkpoint(ctx context.Context, cursor any) error {
	book, err := d.book()
	if err != nil {
		return err
	}
	body, err := noteJSON("checkpoint", cursor)
	if err != nil {
		return err
	}
	return book.Note(ctx, d.ID, Note{Checkpoint: body})
}

// Progress records which part of the work is done, 0 to 1, with a text, for people who look at
// the message. Its errors are those of Checkpoint.
func (d RawDelivery) Progress(ctx context.Context, done float64, text string) error {
	book, err := d.book()
	if err != nil {
		return err
	}
	return book.Note(ctx, d.ID, Note{Progress: &done, ProgressText: text})
}

// SetResult sets the result that is stored when the handler returns nil, as JSON of at most
// [MaxResultBytes]. It is the receipt of the attempt. The last call counts. A handler that
// acknowledges in its own transaction has no result.
func (d RawDelivery) SetResult(result any) error {
	book, err := d.book()
	if err != nil {
		return err
	}
	body, err := noteJSON("result", result)
	if err != nil {
		return err
	}
	if len(body) > MaxResultBytes {
		return &Error{Code: CodeTooLarge, Field: "result", Message: fmt.Sprintf("the result has %d bytes; at most %d are allowed", len(body), MaxResultBytes),
			Hint: "store large data elsewhere, and its key in the result"}
	}
	return book.SetResult(d.ID, body)
}

// Logger returns a logger whose lines are kept with the attempt, in the message's history, and
// nowhere else. Of all attempts together the newest [MaxLogBytes] are kept. Lines are stored
// every quarter of a second and when the handler returns, so a crash may lose the last ones.
func (d RawDelivery) Logger() *slog.Logger {
	book, err := d.book()
	if err != nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(logWriter{book, d.ID}, nil))
}

type logWriter struct {
	book     Notebook
	delivery DeliveryID
}

// Write implements [io.Writer]. Each call is one line.
func (w logWriter) Write(line []byte) (int, error) {
	w.book.Log(w.delivery, line)
	return len(line), nil
}

// LastCheckpoint returns the newest checkpoint of earlier attempts, or nil.
func (d RawDelivery) LastCheckpoint() json.RawMessage {
	if len(d.Story) == 0 {
		return nil
	}
	return d.Story[len(d.Story)-1].Checkpoint
}

// Resume returns the newest checkpoint of earlier attempts, and false if there is none. The
// error is [CodeInvalid] if it cannot be decoded into C. d is a [RawDelivery] or a [Delivery].
func Resume[C any](d interface{ LastCheckpoint() json.RawMessage }) (cursor C, found bool, err error) {
	body := d.LastCheckpoint()
	if body == nil {
		return cursor, false, nil
	}
	if err := json.Unmarshal(body, &cursor); err != nil {
		return cursor, false, &Error{Code: CodeInvalid, Field: "checkpoint", Message: fmt.Sprintf("the checkpoint cannot be decoded into %T: %s", cursor, err), Cause: err}
	}
	return cursor, true, nil
}

// CheckpointJSON encodes a checkpoint, and checks its size.
func CheckpointJSON(cursor any) (json.RawMessage, error) {
	body, err := noteJSON("checkpoint", cursor)
	if err == nil {
		err = (&Note{Checkpoint: body}).Check()
	}
	return body, err
}

func noteJSON(what string, value any) (json.RawMessage, error) {
	body, err := json.Marshal(value)
	if err != nil {
		return nil, &Error{Code: CodeInvalid, Field: what, Message: fmt.Sprintf("the %s cannot be encoded as JSON: %s", what, err), Cause: err}
	}
	return body, nil
}

// LogText returns a log line as every engine can store it: valid UTF-8 without NUL, at most
// [MaxLogBytes] long.
func LogText(line string) string {
	line = strings.ReplaceAll(strings.ToValidUTF8(line, "\uFFFD"), "\x00", "\uFFFD")
	if len(line) > MaxLogBytes {
		line = strings.ToValidUTF8(line[:MaxLogBytes-1], "") + "\n"
	}
	return line
}

// LogTail returns the last whole lines of a log that fit into a number of bytes.
func LogTail(log string, bytes int) string {
	if over := len(log) - max(bytes, 0); over > 0 {
		// After the first end of a line at or behind the cut.
		_, log, _ = strings.Cut(log[over-1:], "\n")
	}
	return log
}

// WithAttempt returns a story with one more attempt, as every engine stores it. The new attempt
// gets the checkpoint of the one before it, unless it has its own: only the newest has one. A
// released attempt replaces an earlier release of the same attempt. Of all logs the newest
// [MaxLogBytes] stay.
func WithAttempt(story []Attempt, next Attempt) []Attempt {
	all := append(make([]Attempt, 0, len(story)+1), story...)
	if n := len(all) - 1; n >= 0 {
		if next.Checkpoint == nil {
			next.Checkpoint = all[n].Checkpoint
		}
		all[n].Checkpoint = nil
		if next.Outcome == OutcomeReleased && all[n].Outcome == OutcomeReleased && next.Attempt == all[n].Attempt {
			next.Log = all[n].Log + next.Log
			all = all[:n]
		}
	}
	all = append(all, next)
	room := MaxLogBytes
	for i := len(all) - 1; i >= 0; i-- {
		all[i].Log = LogTail(all[i].Log, room)
		room -= len(all[i].Log)
	}
	return all
}

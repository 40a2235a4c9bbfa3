package posthaste

import (
	"encoding/json"
	"fmt"
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

// Note is recorded about a delivery while it is handled.
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

// Resume returns the newest checkpoint of earlier attempts, and whether there is one. The
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

// Package sidekiq migrates the jobs of Sidekiq, or jiggler, from a Redis: queued, scheduled,
// retried and dead jobs become messages. `posthaste import sidekiq` runs it.
package sidekiq

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
)

// Headers of imported messages.
const (
	headerJID     = "jid"
	headerSet     = "import-set"   // queue, schedule, retry or dead: the job's set
	headerQueue   = "import-queue" // the job's queue
	headerCreated = "created-at"
	headerRetries = "retry-count"
	headerError   = "error"
)

const (
	// dedupeWindow is how long an imported job is recognized: within it an import that was
	// killed, or one that keeps the jobs, may be run again.
	dedupeWindow = 7 * 24 * time.Hour
	// errorMost bounds the imported error text.
	errorMost = 1000
)

// job is a job as either program stores it.
type job struct {
	Class      string          `json:"class"`
	Wrapped    string          `json:"wrapped"` // the class within Rails's ActiveJob
	Args       json.RawMessage `json:"args"`
	JID        string          `json:"jid"`
	Queue      string          `json:"queue"`
	CreatedAt  json.Number     `json:"created_at"`
	RetryCount *int            `json:"retry_count"`
	ErrorClass string          `json:"error_class"`
	Error      string          `json:"error_message"`
}

// jiggles are the fields that only jiggler's jobs have. In Sidekiq's jobs they may mean
// something else.
type jiggles struct {
	Name    string `json:"name"`    // its class
	Attempt *int   `json:"attempt"` // its retry_count
}

// where is a key that contains jobs.
type where struct {
	key   string
	set   string // queue, schedule, retry or dead
	queue string // of the jobs, if the key names it
}

// message converts a job to a message. score is its time, if it has one. The queue is the
// job's own and not mapped yet.
func message(text string, from where, score float64, jiggler bool) (posthaste.Message, error) {
	var j job
	var more jiggles
	err := json.Unmarshal([]byte(text), &j)
	if err == nil && jiggler {
		err = json.Unmarshal([]byte(text), &more)
	}
	if err != nil {
		return posthaste.Message{}, posthaste.Invalidf("job", "this is not a job: %s", err)
	}
	kind := cmp.Or(j.Wrapped, j.Class, more.Name)
	if kind == "" || len(j.Args) == 0 {
		return posthaste.Message{}, posthaste.Invalidf("job", "this is not a job: it has no class, or no args")
	}
	m := posthaste.Message{Queue: from.queue, Kind: kind, Payload: []byte(j.Args), ContentType: posthaste.ContentTypeJSON, Reference: j.JID, DedupeWindow: dedupeWindow}
	if m.Queue == "" {
		m.Queue = j.Queue
	}
	if m.Queue == "" {
		m.Queue = "default"
	}
	if m.DedupeKey = "sidekiq:" + j.JID; j.JID == "" {
		sum := sha256.Sum256([]byte(text))
		m.DedupeKey = "sidekiq:" + hex.EncodeToString(sum[:])
	}
	m.Headers = map[string]string{headerSet: from.set, headerQueue: m.Queue}
	put := func(name, value string) {
		if value = strings.ToValidUTF8(strings.ReplaceAll(value, "\x00", ""), "�"); value != "" {
			m.Headers[name] = value
		}
	}
	put(headerJID, j.JID)
	put(headerCreated, instant(j.CreatedAt))
	for _, n := range []*int{j.RetryCount, more.Attempt} {
		if n != nil {
			put(headerRetries, strconv.Itoa(*n))
		}
	}
	put(headerError, failure(&j))
	if from.set == "schedule" || from.set == "retry" {
		m.SendAt = at(score)
	}
	return m, nil
}

// failure returns the text of a job's last error.
func failure(j *job) string {
	text := j.Error
	if j.ErrorClass != "" {
		text = strings.TrimSpace(j.ErrorClass + ": " + text)
	}
	for n := errorMost; len(text) > n; n-- {
		if utf8.RuneStart(text[n]) {
			return text[:n]
		}
	}
	return text
}

// at converts seconds since 1970 to a time.
func at(seconds float64) time.Time {
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)).UTC()
}

// instant formats a job's time: it is in seconds with a fraction, or since Sidekiq 8 in
// milliseconds.
func instant(n json.Number) string {
	seconds, err := n.Float64()
	if err != nil || seconds <= 0 {
		return ""
	}
	if seconds > 1e11 {
		seconds /= 1000
	}
	return at(seconds).Format(time.RFC3339Nano)
}

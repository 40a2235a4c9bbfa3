package wire

import (
	"regexp"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// Interface is what somebody uses Posthaste by.
type Interface int

// Interfaces that have words of their own. Engines speak SQL and Go.
const (
	HTTP Interface = iota
	CLI
)

// hints say what to do about an error in the words of each interface; {name} is the name
// that the message quotes first. An empty one leaves the engine's.
var hints = []struct {
	code  posthaste.Code
	field string
	about string // part of the message, where a field has several
	words [2]string
}{
	{posthaste.NotFound, "queue", "", [...]string{"create it with PUT /v1/queues/{name}; GET /v1/queues lists all", "create it with: posthaste queue create {name}"}},
	{posthaste.NotFound, "schedule", "", [...]string{"create it with PUT /v1/schedules/{name}; GET /v1/schedules lists all", "list all with: posthaste schedule ls"}},
	{posthaste.NotFound, "name", "schedule", [...]string{"create it with PUT /v1/schedules/{name}; GET /v1/schedules lists all", "list all with: posthaste schedule ls"}},
	{posthaste.NotFound, "name", "token", [...]string{"", "list all with: posthaste token ls"}},
	{posthaste.NotFound, "ids", "dead letter", [...]string{noDeadLetterHTTP, noDeadLetterCLI}},
	{posthaste.NotFound, "message_ids", "dead letter", [...]string{noDeadLetterHTTP, noDeadLetterCLI}},
	{posthaste.NotFound, "id", "dead letter", [...]string{noDeadLetterHTTP, noDeadLetterCLI}},
	{posthaste.Conflict, "name", "other options", [...]string{"GET /v1/queues/{name} shows its options; PUT /v1/queues/{name}/limits changes its limits",
		"show its options with: posthaste queue ls {name} --json; change its limits with: posthaste queue limit {name}"}},
	{posthaste.Unsupported, "queue", "look at keys", [...]string{noKeysHTTP, noKeysCLI}},
	{posthaste.Unsupported, "key", "look at keys", [...]string{noKeysHTTP, noKeysCLI}},
	{posthaste.Invalid, "filter", "which dead letters", [...]string{`{"all": true} in its place means every one`, "--all means every one"}},
	{posthaste.Invalid, "expires_in", "token can expire", [...]string{"", tokenEndCLI}},
	{posthaste.Invalid, "expires_at", "token can expire", [...]string{"", tokenEndCLI}},
	{posthaste.Invalid, "time_zone", "", [...]string{timeZone, timeZone}},
}

const (
	noDeadLetterHTTP = "GET /v1/dead-letters lists all; GET /v1/actions?message=ID tells who replayed or discarded one"
	noDeadLetterCLI  = "list all with: posthaste dead ls"
	noKeysHTTP       = "keys can be paused in queues that are ordered or fair, or have a limit for each key; POST /v1/queues/{name}/pause pauses the whole queue"
	noKeysCLI        = "keys can be paused in queues that are ordered or fair, or have a limit for each key; pause the whole queue with: posthaste queue pause {name}"
	tokenEndCLI      = "for example --expires-at 2030-01-31T12:00:00Z, or --expires-in '90 days'"
	notAName         = "a name has 1 to 63 of a-z, 0-9, _, - and ."
	timeZone         = "UTC, or a name with a place in it, such as Europe/Berlin"
)

// quotedName is what a message quotes. Functions double a quote in a name.
var quotedName = regexp.MustCompile(`"[^"]+"|'(?:[^']|'')+'`)

// Hint is what to do about an error, in the words of an interface. Where these would repeat
// something that can be no name, as the path of a URL for example, it says what a name is.
func Hint(e *posthaste.Error, by Interface) string {
	field := e.Field[strings.LastIndexByte(e.Field, '.')+1:] // "relays[0].queue" is of the kind, too
	for _, h := range hints {
		if h.code != e.Code || h.field != field || !strings.Contains(e.Message, h.about) || h.words[by] == "" {
			continue
		}
		words, name := h.words[by], "NAME"
		if quoted := quotedName.FindString(e.Message); quoted != "" && strings.Contains(words, "{name}") {
			name = quoted[1 : len(quoted)-1]
			if posthaste.CheckName("name", name) != nil {
				return notAName
			}
		}
		return strings.ReplaceAll(words, "{name}", name)
	}
	return e.Hint
}

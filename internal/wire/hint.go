package wire

import (
	"regexp"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// Interface is an interface of Posthaste.
type Interface int

// Interfaces with hints of their own. The hints of engines are those of SQL and Go, since their
// errors reach programs of these. What speaks to people translates them here: [Hint] those of
// errors, [NewFindings] those of the doctor.
const (
	HTTP Interface = iota
	CLI
)

// hints says what to do about an error in the terms of each interface. {name} is the first
// name that the message quotes. An empty hint keeps that of the engine.
var hints = []struct {
	code  posthaste.Code
	field string
	about string // part of the message, if a field has several errors
	words [2]string
}{
	{posthaste.CodeNotFound, "queue", "", [...]string{"create it with PUT /v1/queues/{name}; GET /v1/queues lists all", "create it with: posthaste queue create {name}"}},
	{posthaste.CodeNotFound, "schedule", "", [...]string{"create it with PUT /v1/schedules/{name}; GET /v1/schedules lists all", "list all with: posthaste schedule ls"}},
	{posthaste.CodeNotFound, "name", "schedule", [...]string{"create it with PUT /v1/schedules/{name}; GET /v1/schedules lists all", "list all with: posthaste schedule ls"}},
	{posthaste.CodeNotFound, "name", "token", [...]string{"", "list all with: posthaste token ls"}},
	{posthaste.CodeNotFound, "ids", "dead letter", [...]string{noDeadLetterHTTP, noDeadLetterCLI}},
	{posthaste.CodeNotFound, "message_ids", "dead letter", [...]string{noDeadLetterHTTP, noDeadLetterCLI}},
	{posthaste.CodeNotFound, "id", "dead letter", [...]string{noDeadLetterHTTP, noDeadLetterCLI}},
	{posthaste.CodeConflict, "name", "different options", [...]string{"change options with PATCH /v1/queues/{name}", "change options with: posthaste queue update {name}"}},
	{posthaste.CodeUnsupported, "queue", "pausing keys", [...]string{noKeysHTTP, noKeysCLI}},
	{posthaste.CodeUnsupported, "key", "pausing keys", [...]string{noKeysHTTP, noKeysCLI}},
	{posthaste.CodeInvalid, "filter", "invalid filter", [...]string{"", "for example --kind created --kind paid --header region=eu"}},
	{posthaste.CodeInvalid, "filter", "filter is empty", [...]string{`{"all": true} without a filter selects every dead letter`, "--all selects every dead letter"}},
	{posthaste.CodeInvalid, "expires_in", "expiry time", [...]string{"", tokenEndCLI}},
	{posthaste.CodeInvalid, "expires_at", "expiry time", [...]string{"", tokenEndCLI}},
	{posthaste.CodeDenied, "Authorization", "a token is required", [...]string{"", giveToken}},
	{posthaste.CodeInvalid, "time_zone", "", [...]string{timeZone, timeZone}},
}

const (
	noDeadLetterHTTP = "GET /v1/dead-letters lists all; GET /v1/actions?message=ID shows whether it was replayed or discarded, and by which caller"
	noDeadLetterCLI  = "list all with: posthaste dead ls"
	noKeysHTTP       = "keys can only be paused in queues that are ordered or fair or have a limit per key; POST /v1/queues/{name}/pause pauses the whole queue"
	noKeysCLI        = "keys can only be paused in queues that are ordered or fair or have a limit per key; pause the whole queue with: posthaste queue pause {name}"
	tokenEndCLI      = "for example --expires-at 2030-01-31T12:00:00Z, or --expires-in '90 days'"
	giveToken        = "give one with --server-token-file or POSTHASTE_SERVER_TOKEN, or store it with: posthaste context set"
	notAName         = "a name consists of 1 to 63 characters a-z, 0-9, _, - and ."
	timeZone         = "use UTC, or a name such as Europe/Berlin"
)

// quotedName matches a quoted name in a message. SQL functions double a quote in a name.
var quotedName = regexp.MustCompile(`"[^"]+"|'(?:[^']|'')+'`)

// remedies are remedies of SQL, Go and the command line as they occur within the hints of engines,
// and their words in each interface. Those of HTTP occur in the responses of servers that the
// command line shows.
var remedies = []struct {
	pattern *regexp.Regexp
	words   [2]string
}{
	{regexp.MustCompile(`posthaste queue resume (\S+)`), [...]string{"POST /v1/queues/$1/resume", "posthaste queue resume $1"}},
	{regexp.MustCompile(`posthaste\.unsubscribe\('([^']*)', '([^']*)'\)`), [...]string{"DELETE /v1/queues/$1/subscriptions/$2", "posthaste queue unsubscribe $1 $2"}},
	{regexp.MustCompile(`see posthaste\.workers`), [...]string{"see GET /v1/workers", "see posthaste worker ls"}},
	{regexp.MustCompile(`,? or select posthaste\.maintain\(\)( every second)?`), [...]string{"", ""}},
	{regexp.MustCompile(`POST /v1/queues/([^/\s]+)/(pause|resume)\b`), [...]string{"$0", "posthaste queue $2 $1"}},
	{regexp.MustCompile(`DELETE /v1/queues/([^/\s]+)/subscriptions/([^/\s;,)]+)`), [...]string{"$0", "posthaste queue unsubscribe $1 $2"}},
	{regexp.MustCompile(`GET /v1/queues/([^/\s]+)/subscriptions lists them`), [...]string{"$0", "list them with: posthaste queue show $1"}},
	{regexp.MustCompile(`(with )?PATCH /v1/queues/([^/\s;,)]+)`), [...]string{"$0", "${1}posthaste queue update $2"}},
	{regexp.MustCompile(`GET /v1/messages/(\d+|[A-Z]+) shows (it|its state)`), [...]string{"$0", "show $2 with: posthaste message show $1"}},
	{regexp.MustCompile(`\S+ /v1/messages/(\d+|[A-Z]+) is for messages`), [...]string{"$0", "for messages use: posthaste message"}},
	{regexp.MustCompile(`GET /v1/workers`), [...]string{"$0", "posthaste worker ls"}},
	{regexp.MustCompile(` \(in SQL: [^)]*\)| \(\S+ in Go\)`), [...]string{"", ""}},
}

// translate returns the hint of an engine in the words of an interface.
func translate(hint string, by Interface) string {
	for _, r := range remedies {
		hint = r.pattern.ReplaceAllString(hint, r.words[by])
	}
	return hint
}

// Hint says what to do about an error, in the terms of an interface. If the quoted text is
// not a valid name, the hint describes valid names.
func Hint(e *posthaste.Error, by Interface) string {
	field := e.Field[strings.LastIndexByte(e.Field, '.')+1:] // also of "relays[0].queue"
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
	return translate(e.Hint, by)
}

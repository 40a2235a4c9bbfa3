package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// oneServer is the hint for a server of a cluster that was opened without cluster=true.
const oneServer = "use the URL of the cluster: redis://host:6379?cluster=true, with further servers as &addr=host2:6379; a program in Go may give its client of the cluster to redis.New"

const permissionsHint = "give it the commands, keys and channels that docs/production/redis-engine.md lists"

// refusals are the errors by which Redis rejects a command as a whole, by their prefixes.
var refusals = []struct {
	begins  string
	code    posthaste.Code
	message string
	hint    string
}{

	{"READONLY", posthaste.CodeReadOnly, "this Redis is a replica and accepts no writes", "connect to the master"},
	{"OOM", posthaste.CodeUnavailable, "Redis is out of memory and accepts no more messages", "raise maxmemory, or let workers catch up; then send again"},
	{"NOAUTH", posthaste.CodeDenied, "Redis requires a password", "put the user and password into the URL"},
	{"WRONGPASS", posthaste.CodeDenied, "Redis rejects this user and password", "check both"},
	{"NOPERM", posthaste.CodeDenied, "this Redis user lacks a permission", permissionsHint},
	{"LOADING", posthaste.CodeUnavailable, "Redis is still loading its data", "try again"},
	{"BUSY", posthaste.CodeUnavailable, "Redis is busy with a script", "try again"},
	{"MISCONF", posthaste.CodeUnavailable, "Redis cannot write its data to disk and accepts no writes", "check its log and its disk"},
	{"MASTERDOWN", posthaste.CodeUnavailable, "this Redis is a replica that has lost its master", "connect to the master"},
	{"NOREPLICAS", posthaste.CodeUnavailable, "Redis has too few replicas to accept writes (min-replicas-to-write)", "start them, then try again"},
	{"CLUSTERDOWN", posthaste.CodeUnavailable, "the cluster does not serve all its slots", "try again"},
	{"TRYAGAIN", posthaste.CodeUnavailable, "a slot of the cluster is being moved", "try again"},
	{"ERR This instance has cluster support disabled", posthaste.CodeUnsupported, "this Redis is not a cluster", "leave cluster=true and addr out of the URL"},
	{"CROSSSLOT", posthaste.CodeUnsupported, "in a cluster, one call can send to one queue only", "send to each queue in its own call"},
	{"MOVED", posthaste.CodeUnsupported, "this Redis is one server of a cluster, and not all queues are on it", oneServer},
	{"ASK ", posthaste.CodeUnsupported, "this Redis is one server of a cluster, and not all queues are on it", oneServer},
	{"ERR DB index", posthaste.CodeInvalid, "this Redis has no database with that number", "use another number at the end of the URL"},
	{"ERR SELECT is not allowed", posthaste.CodeUnsupported, "this Redis is one server of a cluster, which has no numbered databases", oneServer},
	{"ERR max number of clients", posthaste.CodeUnavailable, "Redis has too many clients", "raise maxclients, or try again"},
}

// refusal translates an error by which Redis rejected a command as a whole. It returns nil for
// another error, after which a part may have been done.
func refusal(err error) error {
	text := err.Error()
	for _, r := range refusals {
		if strings.HasPrefix(text, r.begins) {
			message := r.message
			if r.code == posthaste.CodeDenied { // the text names the permission, and no secret
				message += ": " + text
			}
			no := &posthaste.Error{Code: r.code, Message: message, Hint: r.hint, Cause: err}
			if r.code == posthaste.CodeInvalid { // the only one is about the database's number
				no.Field = "url"
			}
			return no
		}
	}
	return nil
}

// readError translates an error of a command that can be repeated.
func readError(err error) error {
	var ours *posthaste.Error
	if err == nil || errors.As(err, &ours) || errors.Is(err, context.Canceled) {
		return err
	}
	text := err.Error()
	if no := refusal(err); no != nil {
		return no
	}
	for _, begins := range [...]string{"ERR The user executing", "ERR ACL failure"} {
		if strings.HasPrefix(text, begins) { // of a script that writes nothing: others check first
			return &posthaste.Error{Code: posthaste.CodeDenied, Message: "this Redis user lacks a permission: " + text, Hint: permissionsHint, Cause: err}
		}
	}
	if answered(err) {
		return err
	}
	return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "Redis cannot be reached: " + text,
		Hint: "check that it runs and that the URL is right, then try again", Cause: err}
}

// writeError translates an error of a command that must not be repeated blindly. If the reply
// was lost, or Redis stopped a script midway, the outcome is unknown.
func writeError(err error) error {
	var ours *posthaste.Error
	if err == nil || errors.As(err, &ours) || neverSent(err) {
		return readError(err)
	}
	what := "the reply was lost"
	if answered(err) {
		if no := refusal(err); no != nil {
			return no
		}
		what = "Redis stopped midway"
	}
	return &posthaste.Error{Code: posthaste.CodeOutcomeUnknown, Message: what + ", so this may or may not have been done: " + err.Error(),
		Hint: "check whether it was done before you repeat it", Cause: err}
}

// answered reports whether an error is a reply of Redis.
func answered(err error) bool {
	var said goredis.Error
	return errors.As(err, &said)
}

// neverSent reports whether an error occurred before anything was sent.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, goredis.ErrPoolTimeout) || errors.Is(err, goredis.ErrPoolExhausted) || errors.Is(err, goredis.ErrClosed)
}

func ignore(err error, code posthaste.Code) error {
	if posthaste.CodeOf(err) == code {
		return nil
	}
	return err
}

// otherRoute is the error for a new content with which a message would take another way. field is
// key if it would get another turn, and kind if other subscriptions would get it.
func otherRoute(message posthaste.MessageID, field string) error {
	text := "the new kind or headers of message %d would change which subscriptions get it"
	if field == "key" {
		text = "the key of message %d cannot be changed, because it waits in a queue that looks at keys"
	}
	return &posthaste.Error{Code: posthaste.CodeConflict, Field: field, Hint: "cancel it, and send another", Message: fmt.Sprintf(text, message)}
}

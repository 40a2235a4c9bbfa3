package redis

import (
	"context"
	"errors"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// oneServer is what to do where a cluster's server was opened by itself.
const oneServer = "say so in the URL: redis://host:6379?cluster=true, with further servers as &addr=host2:6379; a program in Go may give its client of the cluster to redis.New"

const permissionsHint = "give it the commands, keys and channels that docs/redis-engine.md lists"

// refusals are what Redis answers before it has done anything, by how that begins.
var refusals = []struct {
	begins  string
	code    posthaste.Code
	message string
	hint    string
}{
	{"READONLY", posthaste.ReadOnly, "this Redis is a replica, which takes no writes", "connect to the master"},
	{"OOM", posthaste.Unavailable, "Redis is out of memory and takes no more messages", "raise maxmemory, or let workers catch up; then send again"},
	{"NOAUTH", posthaste.Denied, "Redis wants a password", "put user and password into the URL"},
	{"WRONGPASS", posthaste.Denied, "Redis does not take this user and password", "check both"},
	{"NOPERM", posthaste.Denied, "this user of Redis may not do what is needed", permissionsHint},
	{"LOADING", posthaste.Unavailable, "Redis is still loading its data", "try again"},
	{"BUSY", posthaste.Unavailable, "Redis is busy with somebody's script", "try again"},
	{"MISCONF", posthaste.Unavailable, "Redis cannot write its data to its disk and takes no writes", "look at its log and its disk"},
	{"MASTERDOWN", posthaste.Unavailable, "this Redis is a replica that has lost its master", "connect to the master"},
	{"NOREPLICAS", posthaste.Unavailable, "Redis has too few replicas to take writes (min-replicas-to-write)", "start them, then try again"},
	{"CLUSTERDOWN", posthaste.Unavailable, "the cluster does not serve all its slots", "try again"},
	{"TRYAGAIN", posthaste.Unavailable, "a slot of the cluster is being moved", "try again"},
	{"ERR This instance has cluster support disabled", posthaste.Unsupported, "this Redis is no cluster", "leave cluster=true and addr out of the URL"},
	{"CROSSSLOT", posthaste.Unsupported, "in a cluster one call sends to one queue", "send to each queue by itself"},
	{"MOVED", posthaste.Unsupported, "this Redis is one server of a cluster, and not all queues are on it", oneServer},
	{"ASK ", posthaste.Unsupported, "this Redis is one server of a cluster, and not all queues are on it", oneServer},
	{"ERR DB index", posthaste.Invalid, "this Redis has no database of that number", "give another number at the end of the URL"},
	{"ERR SELECT is not allowed", posthaste.Unsupported, "this Redis is one server of a cluster, which has no databases by number", oneServer},
	{"ERR max number of clients", posthaste.Unavailable, "Redis has too many clients", "raise maxclients, or try again"},
}

// refusal is what Redis answered before it did anything, or nil if it may have done a part.
func refusal(err error) error {
	text := err.Error()
	for _, r := range refusals {
		if strings.HasPrefix(text, r.begins) {
			message := r.message
			if r.code == posthaste.Denied { // Redis says what, and no secret
				message += ": " + text
			}
			return &posthaste.Error{Code: r.code, Message: message, Hint: r.hint, Cause: err}
		}
	}
	return nil
}

// readError is an error of a command that may simply be repeated.
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
		if strings.HasPrefix(text, begins) { // in a script that writes nothing: others look first
			return &posthaste.Error{Code: posthaste.Denied, Message: "this user of Redis may not do what is needed: " + text, Hint: permissionsHint, Cause: err}
		}
	}
	if answered(err) {
		return err
	}
	return &posthaste.Error{Code: posthaste.Unavailable, Message: "Redis cannot be reached: " + text,
		Hint: "check that it runs and that the URL is right, then try again", Cause: err}
}

// writeError is [readError] for what must not be repeated blindly: where no answer came, or
// Redis stopped a script in its middle, it may have been done.
func writeError(err error) error {
	var ours *posthaste.Error
	if err == nil || errors.As(err, &ours) || neverSent(err) {
		return readError(err)
	}
	what := "the answer was lost"
	if answered(err) {
		if no := refusal(err); no != nil {
			return no
		}
		what = "Redis stopped in the middle"
	}
	return &posthaste.Error{Code: posthaste.OutcomeUnsure, Message: what + ", so this may or may not have been done: " + err.Error(),
		Hint: "look whether it was done before doing it again", Cause: err}
}

// answered reports whether Redis itself answered with an error.
func answered(err error) bool {
	var said goredis.Error
	return errors.As(err, &said)
}

// neverSent reports whether there was no connection to send anything over.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, goredis.ErrPoolTimeout) || errors.Is(err, goredis.ErrPoolExhausted) || errors.Is(err, goredis.ErrClosed)
}

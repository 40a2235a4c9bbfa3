package inbox

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

const (
	// awayFor is the approximate delay of a message while the inbox is unavailable.
	awayFor = 5 * time.Second
	// awayTold is the interval at which the log repeats the reason.
	awayTold = 30 * time.Second
)

// readOnly is the SQLSTATE of a standby, or of a primary that was demoted.
const readOnly = "25006"

// away snoozes messages while the store is unavailable.
type away struct{ told atomic.Int64 } // time of the last log line, in Unix nanoseconds

// rest turns err into an error by which the message is redelivered later under the same
// attempt: it was not handled, and that is not the message's fault. The attempt's record does
// not show such an error, so rest logs the reason.
func (a *away) rest(err error) error {
	now := time.Now().UnixNano()
	if told := a.told.Load(); now-told >= int64(awayTold) && a.told.CompareAndSwap(told, now) {
		slog.Warn("the inbox is unavailable: messages are redelivered later", "error", err)
	}
	after := awayFor/2 + rand.N(awayFor)
	return posthaste.RetryAfter(fmt.Errorf("%w (%w)", err, posthaste.Snooze(after)), after)
}

// redisAway reports whether Redis could not be reached or cannot serve any client now.
func redisAway(err error) bool {
	var said redis.Error
	if !errors.As(err, &said) {
		return true
	}
	return redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsMasterDownError(err) || redis.IsClusterDownError(err) ||
		redis.IsTryAgainError(err) || redis.IsMaxClientsError(err) || redis.IsNoReplicasError(err) || redis.IsOOMError(err) || redis.HasErrorPrefix(err, "MISCONF")
}

// postgresAway reports whether PostgreSQL could not be reached or serves no client now. Any
// response to a statement or a login has a SQLSTATE, with every driver.
func postgresAway(err error) bool {
	var said interface{ SQLState() string }
	if !errors.As(err, &said) {
		return true
	}
	state := said.SQLState()
	return strings.HasPrefix(state, "08") || strings.HasPrefix(state, "57P") || strings.HasPrefix(state, "53") || state == readOnly
}

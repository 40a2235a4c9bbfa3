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

	posthaste "github.com/posthaste-mq/posthaste"
)

const (
	// awayFor is about how long a message rests whose inbox cannot be used.
	awayFor = 5 * time.Second
	// awayTold is how often the log says why.
	awayTold = 30 * time.Second
)

// readOnly is what a standby answers, and a primary that has become one.
const readOnly = "25006"

// away lets messages wait for a store that cannot be used.
type away struct{ told atomic.Int64 } // when the log was told last, in Unix nanoseconds

// rest is err as an answer by which a message comes again later under the same attempt:
// nothing was handled, and that is no fault of the message. Such an answer is on no
// record, so the log says why.
func (a *away) rest(err error) error {
	now := time.Now().UnixNano()
	if told := a.told.Load(); now-told >= int64(awayTold) && a.told.CompareAndSwap(told, now) {
		slog.Warn("the inbox cannot be used: messages wait for it, and nothing is handled", "error", err)
	}
	after := awayFor/2 + rand.N(awayFor)
	return posthaste.RetryAfter(fmt.Errorf("%w (%w)", err, posthaste.Snooze(after)), after)
}

// redisAway reports whether Redis was not reached, or cannot serve anybody now.
func redisAway(err error) bool {
	var said redis.Error
	if !errors.As(err, &said) {
		return true
	}
	return redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsMasterDownError(err) || redis.IsClusterDownError(err) ||
		redis.IsTryAgainError(err) || redis.IsMaxClientsError(err) || redis.IsNoReplicasError(err) || redis.IsOOMError(err) || strings.HasPrefix(said.Error(), "MISCONF")
}

// postgresAway reports whether PostgreSQL was not reached, or serves nobody now: what it
// answers to a statement or a login has a SQLSTATE, whichever driver has heard it.
func postgresAway(err error) bool {
	var said interface{ SQLState() string }
	if !errors.As(err, &said) {
		return true
	}
	state := said.SQLState()
	return strings.HasPrefix(state, "08") || strings.HasPrefix(state, "57P") || strings.HasPrefix(state, "53") || state == readOnly
}

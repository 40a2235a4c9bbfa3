//go:build unix

package cli

import (
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
)

// upFlags holds the flags of up.
type upFlags struct {
	serverFlags
	sinkFlags
	data         string
	reset        bool
	yes          confirmed
	postgresPort int
	postgresBin  string
	engine       string
	redisPort    int
	smtpListen   string
	broker       string
	relays       []relayConfig // set by --broker
	// delivers is the mail server that delivers mails, or "" for the catcher.
	delivers string
}

// checkStore checks the flags that apply to one engine.
func (u *upFlags) checkStore(flags *pflag.FlagSet) error {
	if err := checkEngine(u.engine, onPostgres, onRedis); err != nil {
		return err
	}
	others := []string{"redis-port"}
	if u.engine == onRedis {
		others = []string{"postgres-port", "postgres-bin"}
	}
	for _, name := range others {
		if typed(flags, name) {
			return posthaste.Invalidf(name, "--%s does not apply to --engine %s", name, u.engine)
		}
	}
	if u.redisPort < 0 || u.redisPort > 65535 {
		return posthaste.Invalidf("redis-port", "--redis-port must be 0 to 65535, got %d", u.redisPort)
	}
	return nil
}

// storeName returns the product name of the store.
func (u *upFlags) storeName() string {
	if u.engine == onRedis {
		return "Redis"
	}
	return "PostgreSQL"
}

// relayQueue is the queue that `up --broker` relays.
const relayQueue = "outbox"

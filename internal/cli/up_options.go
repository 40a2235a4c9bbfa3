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
	natsPort     int
	smtpListen   string
	broker       string
	relays       []relayConfig // set by --broker
	// delivers is the mail server that delivers mails, or "" for the catcher.
	delivers string
}

// checkStore checks the flags that apply to one engine.
func (u *upFlags) checkStore(flags *pflag.FlagSet) error {
	if err := checkEngine(u.engine, localEngineNames()); err != nil {
		return err
	}
	for _, e := range localEngines {
		for _, name := range e.flags {
			if e.engine != u.engine && typed(flags, name) {
				return posthaste.Invalidf(name, "--%s does not apply to --engine %s", name, u.engine)
			}
		}
	}
	for name, port := range map[string]int{"postgres-port": u.postgresPort, "redis-port": u.redisPort, "nats-port": u.natsPort} {
		if port < 0 || port > 65535 {
			return posthaste.Invalidf(name, "--%s must be 0 to 65535, got %d", name, port)
		}
	}
	return nil
}

// storeName returns the product name of the store.
func (u *upFlags) storeName() string { return kindOf(u.engine).name }

// relayQueue is the queue that `up --broker` relays.
const relayQueue = "outbox"

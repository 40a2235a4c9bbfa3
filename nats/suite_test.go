package nats

import (
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/enginetest"
)

func TestEngine(t *testing.T) {
	t.Parallel()
	url := startServer(t)
	enginetest.Run(t, (&Engine{}).Capabilities(), func(t *testing.T) posthaste.Store {
		return openEngine(t, url, WithPrefix(prefixOf(t)), WithAckWait(10*time.Second))
	})
}

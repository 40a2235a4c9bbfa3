package redisstream

import (
	"testing"

	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/source"
)

func TestNoPartOfAPasswordIsTold(t *testing.T) {
	t.Parallel()
	configtest.NoPartOfAPassword(t, func(password string) error {
		_, err := New(nil, Config{URL: "redis://me:" + password + "@mq:6379/0", Stream: "in", Config: source.Config{Queue: "orders"}})
		return err
	})
}

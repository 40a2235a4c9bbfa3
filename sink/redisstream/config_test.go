package redisstream

import (
	"testing"

	"github.com/posthaste-mq/posthaste/internal/configtest"
)

func TestNoPartOfAPasswordIsTold(t *testing.T) {
	t.Parallel()
	configtest.NoPartOfAPassword(t, func(password string) error {
		_, err := New(Config{URL: "redis://me:" + password + "@mq:6379/0"})
		return err
	})
}

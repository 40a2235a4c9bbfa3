package amqp1

import (
	"testing"

	"github.com/posthaste-mq/posthaste/internal/configtest"
)

func TestNoPartOfAPasswordIsTold(t *testing.T) {
	t.Parallel()
	configtest.NoPartOfAPassword(t, func(password string) error {
		_, err := NewSink(SinkConfig{URL: URL("amqp1://me:" + password + "@mq/")})
		return err
	})
}

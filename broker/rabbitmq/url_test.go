package rabbitmq

import (
	"testing"

	"github.com/posthaste-mq/posthaste/internal/configtest"
)

func TestNoPartOfAPasswordIsTold(t *testing.T) {
	t.Parallel()
	configtest.NoPartOfAPassword(t, func(password string) error {
		return (&endpoint{URL: URL("amqp://me:" + password + "@mq/")}).check()
	})
}

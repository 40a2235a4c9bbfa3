package rabbit

import (
	"testing"

	"github.com/posthaste-mq/posthaste/internal/configtest"
)

func TestNoPartOfAPasswordIsTold(t *testing.T) {
	t.Parallel()
	configtest.NoPartOfAPassword(t, func(password string) error {
		return (&Broker{URL: "amqp://me:" + password + "@mq/"}).Check()
	})
}

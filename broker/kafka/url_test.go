package kafka

import (
	"testing"

	"github.com/posthaste-mq/posthaste/internal/configtest"
)

func TestNoPartOfAPasswordIsTold(t *testing.T) {
	t.Parallel()
	configtest.NoPartOfAPassword(t, func(password string) error {
		_, _, err := (&endpoint{URL: URL("kafka://me:" + password + "@mq:9092,mq2:9092")}).options()
		return err
	})
}

package redisstream

import (
	"testing"

	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/source"
)

func TestNoPartOfAPasswordIsTold(t *testing.T) {
	t.Parallel()
	for side, use := range map[string]func(URL) error{
		"sink": func(url URL) error {
			_, err := NewSink(SinkConfig{URL: url})
			return err
		},
		"source": func(url URL) error {
			_, err := NewSource(nil, SourceConfig{URL: url, Stream: "in", Config: source.Config{Queue: "orders"}})
			return err
		},
	} {
		t.Run(side, func(t *testing.T) {
			configtest.NoPartOfAPassword(t, func(password string) error { return use(URL("redis://me:" + password + "@mq:6379/0")) })
		})
	}
}

//go:build !unix

package bench

import (
	"context"
	"errors"
)

func startRedis(context.Context, string) (url string, stop func(), err error) {
	return "", nil, errors.New("the bench starts a Redis of its own on Unix only")
}

func startRabbitMQ(context.Context, string) (url string, stop func(), err error) {
	return "", nil, errors.New("the bench starts a broker of its own on Unix only")
}

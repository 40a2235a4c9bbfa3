//go:build !unix

package bench

import (
	"context"
	"errors"
)

func startBroker(context.Context, string, string) (url string, stop func(), err error) {
	return "", nil, errors.New("the bench starts a broker of its own on Unix only")
}

func startNATSServers(context.Context, string, int) (url string, pids []int, stop func(), err error) {
	return "", nil, nil, errors.New("the bench starts servers of its own on Unix only")
}

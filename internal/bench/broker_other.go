//go:build !unix

package bench

import (
	"context"
	"errors"
)

func startBroker(context.Context, string, string) (url string, stop func(), err error) {
	return "", nil, errors.New("the bench starts a broker of its own on Unix only")
}

package devbroker

import (
	"context"
	"fmt"
	"os"
)

// Main runs a package's tests with a broker that they share: it starts one in a
// directory of its own, puts it where to points, and ends the process. Tests that
// hurt a broker start their own.
func Main[B interface{ Stop() }](tests interface{ Run() int }, to *B, start func(ctx context.Context, dir string) (B, error)) {
	dir, err := os.MkdirTemp("", "posthaste-broker-")
	if err == nil {
		*to, err = start(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := tests.Run()
	(*to).Stop()
	os.RemoveAll(dir)
	os.Exit(code)
}

//go:build unix

package devbroker

import (
	"context"
	"fmt"
	"os"
)

// Main runs the tests of a package with a broker that they share, and exits. It starts the
// broker in a new directory and stores it in to. Tests that disturb a broker start their
// own.
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

// MainTLS is [Main] for a broker that also listens with TLS, with new certificates.
func MainTLS[B interface{ Stop() }](tests interface{ Run() int }, to *B, certificates **Certificates,
	start func(ctx context.Context, dir string, c *Certificates) (B, error)) {
	Main(tests, to, func(ctx context.Context, dir string) (b B, err error) {
		if *certificates, err = NewCertificates(dir); err != nil {
			return b, err
		}
		return start(ctx, dir, *certificates)
	})
}

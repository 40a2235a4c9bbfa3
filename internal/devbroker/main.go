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

// MainTLS is [Main] for a broker that also listens with TLS, by certificates made for it.
func MainTLS[B interface{ Stop() }](tests interface{ Run() int }, to *B, certificates **Certificates,
	start func(ctx context.Context, dir string, c *Certificates) (B, error)) {
	Main(tests, to, func(ctx context.Context, dir string) (b B, err error) {
		if *certificates, err = NewCertificates(dir); err != nil {
			return b, err
		}
		return start(ctx, dir, *certificates)
	})
}

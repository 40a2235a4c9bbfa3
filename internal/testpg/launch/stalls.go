//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// watchStalls records slow fsyncs of a file in dir and slow NOTIFYs, in a file in dir that the
// tests of the run read. stop ends it and removes the file.
func watchStalls(serverURL, dir string) (path string, stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	file, err := os.CreateTemp(dir, "stalls-")
	if err != nil {
		cancel()
		return "", nil, err
	}
	conn, err := pgx.Connect(ctx, serverURL)
	if err == nil {
		_, err = conn.Exec(ctx, "listen witness")
	}
	if err != nil {
		cancel()
		_ = os.Remove(file.Name())
		return "", nil, fmt.Errorf("the witness of stalls cannot listen: %w", err)
	}
	// One write per line, so that a reader never sees half a line.
	witness := testrun.NewWitness(func(s testrun.Stall) { _, _ = file.WriteString(s.Line()) })
	var watching sync.WaitGroup
	tell := func(watch func() error) {
		watching.Go(func() {
			if err := watch(); err != nil {
				fmt.Fprintln(os.Stderr, "launch:", err)
			}
		})
	}
	tell(func() error { return witness.WatchFsync(ctx, dir) })
	tell(func() error {
		return witness.WatchNotify(ctx, func(ctx context.Context) error {
			if _, err := conn.Exec(ctx, "notify witness"); err != nil {
				return err
			}
			_, err := conn.WaitForNotification(ctx)
			return err
		})
	})
	return file.Name(), func() {
		cancel()
		watching.Wait()
		_ = conn.Close(context.Background())
		_ = file.Close()
		_ = os.Remove(file.Name())
	}, nil
}

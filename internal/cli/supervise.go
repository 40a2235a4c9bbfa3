package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// service is a part of the program that runs until its context is cancelled.
type service struct {
	name string
	run  func(ctx context.Context) error
}

// runningService is a started service.
type runningService struct {
	service
	cancel context.CancelFunc
	done   chan struct{}
	err    error // set before done is closed
}

// supervise runs services until ctx is cancelled or one of them ends. Then it stops them in
// the order of the arguments, one after the other, so that a service can use later ones
// until its end. It returns the errors of all failed services.
func supervise(ctx context.Context, log *slog.Logger, services ...service) error {
	ended := make(chan struct{}, len(services))
	running := make([]*runningService, len(services))
	for i, s := range services {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := &runningService{service: s, cancel: cancel, done: make(chan struct{})}
		running[i] = r
		go func() {
			defer close(r.done)
			defer func() { ended <- struct{}{} }()
			r.err = r.run(own)
		}()
	}
	select {
	case <-ctx.Done():
	case <-ended:
	}
	var faults []error
	for _, r := range running {
		r.cancel()
		<-r.done
		log.Debug("stopped", "service", r.name)
		if r.err != nil && !errors.Is(r.err, context.Canceled) {
			faults = append(faults, fmt.Errorf("%s: %w", r.name, r.err))
		}
	}
	return errors.Join(faults...)
}

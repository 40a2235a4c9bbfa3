package bench

import (
	"context"
	"log/slog"
	"os"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/brokers"
)

// openBroker returns the URL of the broker that the options name, or starts one.
func openBroker(ctx context.Context, r *run) (url string, stop func(), err error) {
	kind, own, err := kindOf(r.o.Broker)
	if err != nil || !own {
		return r.o.Broker, func() {}, err
	}
	return startOwn(ctx, r, kind)
}

// startOwn starts a broker of this machine for the run.
func startOwn(ctx context.Context, r *run, kind *brokers.Kind) (url string, stop func(), err error) {
	r.phase("starting " + kind.Name)
	dir, err := os.MkdirTemp(r.o.DataDir, "posthaste-bench-broker-")
	if err != nil {
		return "", nil, err
	}
	url, end, err := startBroker(ctx, kind.Word, dir)
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "broker", Message: err.Error(), Hint: "install it (" + kind.Install + "), or name a broker with --broker", Cause: err}
	}
	return url, func() {
		end()
		if err := os.RemoveAll(dir); err != nil {
			r.o.Log.Warn("bench could not clear up", slog.Any("error", err))
		}
	}, nil
}

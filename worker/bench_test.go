package worker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// stubEngine hands out n prepared messages and settles whatever it is given,
// at next to no cost, so that a benchmark shows what the runtime itself costs.
type stubEngine struct {
	posthaste.Store
	batch   []posthaste.RawDelivery
	left    atomic.Int64
	settled atomic.Int64
	calls   atomic.Int64
	want    int64
	done    chan struct{}
	results []posthaste.SettleResult
}

// Report implements [posthaste.Engine].
func (*stubEngine) Report(context.Context, posthaste.WorkerID, []posthaste.HandlerStats) error {
	return nil
}

func newStubEngine(n int) *stubEngine {
	e := &stubEngine{want: int64(n), done: make(chan struct{})}
	e.left.Store(int64(n))
	payload := make([]byte, 200)
	for i := range 4096 {
		e.batch = append(e.batch, posthaste.RawDelivery{ID: posthaste.DeliveryID(i + 1), MessageID: posthaste.MessageID(i + 1),
			Queue: "q", Subscription: "default", Attempt: 1, Payload: payload, Timeout: 30 * time.Second})
		e.results = append(e.results, posthaste.SettleResult{Settled: true, Outcome: posthaste.OutcomeDone})
	}
	return e
}

func (e *stubEngine) Claim(_ context.Context, req posthaste.ClaimRequest) (posthaste.ClaimReply, error) {
	n := min(int64(req.Max), e.left.Load())
	e.left.Add(-n)
	return posthaste.ClaimReply{Deliveries: slices.Clone(e.batch[:n]), NextDue: -1}, nil
}

func (e *stubEngine) Settle(_ context.Context, s []posthaste.Settlement) ([]posthaste.SettleResult, error) {
	e.calls.Add(1)
	if e.settled.Add(int64(len(s))) >= e.want {
		close(e.done)
	}
	return e.results[:len(s)], nil
}

func (e *stubEngine) Queues(context.Context, ...string) ([]posthaste.QueueInfo, error) {
	return []posthaste.QueueInfo{{Name: "q", Subscriptions: []posthaste.SubscriptionInfo{{Name: "default"}}}}, nil
}
func (e *stubEngine) Register(context.Context, posthaste.WorkerInfo) (posthaste.WorkerID, error) {
	return 1, nil
}
func (e *stubEngine) Unregister(context.Context, posthaste.WorkerID) error { return nil }
func (e *stubEngine) Heartbeat(context.Context, posthaste.Heartbeat) (posthaste.HeartbeatReply, error) {
	return posthaste.HeartbeatReply{}, nil
}
func (e *stubEngine) Maintain(context.Context, posthaste.Upkeep) (posthaste.MaintainReply, error) {
	return posthaste.MaintainReply{}, nil
}
func (e *stubEngine) Unsettled(context.Context, posthaste.WorkerID, int64) ([]posthaste.DeliveryID, error) {
	return nil, nil
}
func (e *stubEngine) Doorbell(context.Context) (posthaste.Doorbell, error) { return stubBell{}, nil }

type stubBell struct{}

func (stubBell) Sleep(ctx context.Context, _ string, look func(context.Context) (posthaste.LookReply, error)) error {
	if reply, err := look(ctx); err != nil || reply.Found {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}
func (stubBell) Wake(string) {}
func (stubBell) Close()      {}

// BenchmarkRuntime measures the runtime's own cost of one message: from the
// claim's answer over the handler call to the settle's argument.
func BenchmarkRuntime(b *testing.B) {
	for _, concurrency := range []int{1, 100} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) {
			e := newStubEngine(b.N)
			w := New(e, Config{Concurrency: concurrency, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
			HandleRaw(w, "q", func(context.Context, posthaste.RawDelivery) error { return nil })
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error)
			b.ReportAllocs()
			b.ResetTimer()
			go func() { ended <- w.Run(ctx) }()
			<-e.done
			b.StopTimer()
			b.ReportMetric(float64(b.N)/float64(e.calls.Load()), "messages/settle")
			cancel()
			if err := <-ended; err != nil {
				b.Fatal(err)
			}
		})
	}
}

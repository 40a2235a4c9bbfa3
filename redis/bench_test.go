package redis

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// BenchmarkRE6 handles messages that wait, of 200 bytes: with the runtime on this
// engine, and by the usual loops of 50 connections. Run it with -benchtime=200000x.
// What Redis's own process needed per message is told beside the time.
func BenchmarkRE6(b *testing.B) {
	for _, mode := range []posthaste.Mode{posthaste.AtLeastOnce, posthaste.AtMostOnce} {
		b.Run(string(mode), func(b *testing.B) { benchmarkWorker(b, mode) })
	}
	loop := func(b *testing.B, take func(ctx context.Context, c *goredis.Client, work, busy string) bool) {
		c := goredis.NewClient(&goredis.Options{Addr: server.Address(), PoolSize: 50, MaxRetries: -1})
		defer c.Close()
		prefix := strconv.FormatInt(prefixes.Add(1), 10)
		for sent := 0; sent < b.N; {
			batch := make([]any, min(1000, b.N-sent))
			for i := range batch {
				batch[i] = strconv.Itoa(sent+i) + strings.Repeat("x", 190)
			}
			if err := c.LPush(b.Context(), prefix+"work", batch...).Err(); err != nil {
				b.Fatal(err)
			}
			sent += len(batch)
		}
		before := cpu(b)
		b.ResetTimer()
		var all sync.WaitGroup
		var left atomic.Int64
		left.Store(int64(b.N))
		for i := range 50 {
			all.Go(func() {
				for left.Add(-1) >= 0 {
					if !take(b.Context(), c, prefix+"work", prefix+"busy"+strconv.Itoa(i)) {
						b.Error("nothing came")
						return
					}
				}
			})
		}
		all.Wait()
		b.StopTimer()
		report(b, before)
	}
	b.Run("BLMOVE+LREM", func(b *testing.B) {
		loop(b, func(ctx context.Context, c *goredis.Client, work, busy string) bool {
			m, err := c.BLMove(ctx, work, busy, "RIGHT", "LEFT", 10*time.Second).Result()
			return err == nil && c.LRem(ctx, busy, 1, m).Err() == nil
		})
	})
	b.Run("BRPOP", func(b *testing.B) {
		loop(b, func(ctx context.Context, c *goredis.Client, work, _ string) bool {
			return c.BRPop(ctx, 10*time.Second, work).Err() == nil
		})
	})
}

// cpu is what Redis's process has used, in hundredths of a second.
func cpu(b *testing.B) int64 {
	b.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(server.PID()) + "/stat")
	if err != nil {
		return 0 // not on this system
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')'):]))
	user, _ := strconv.ParseInt(fields[12], 10, 64)
	system, _ := strconv.ParseInt(fields[13], 10, 64)
	return user + system
}

func report(b *testing.B, before int64) {
	b.Helper()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	b.ReportMetric(float64(cpu(b)-before)*1e4/float64(b.N), "redis-µs/message")
}

func benchmarkWorker(b *testing.B, mode posthaste.Mode) {
	e, err := Open(b.Context(), server.URL(), WithPrefix("bench"+strconv.FormatInt(prefixes.Add(1), 10)))
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	if err := e.QueueCreate(b.Context(), jobs, posthaste.QueueOptions{Mode: mode}); err != nil {
		b.Fatal(err)
	}
	for sent := 0; sent < b.N; {
		batch := make([]posthaste.Message, min(1000, b.N-sent))
		for i := range batch {
			batch[i] = posthaste.Message{Queue: jobs, Payload: make([]byte, 200)}
		}
		if _, err := e.Send(b.Context(), batch...); err != nil {
			b.Fatal(err)
		}
		sent += len(batch)
	}
	w := worker.New(e, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	var handled atomic.Int64
	all := make(chan struct{})
	n := int64(b.N)
	worker.Handle(w, jobs, func(context.Context, posthaste.Delivery[[]byte]) error {
		if handled.Add(1) == n {
			close(all)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	before := cpu(b)
	b.ResetTimer()
	go func() { ended <- w.Run(ctx) }()
	<-all
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
	b.StopTimer()
	report(b, before)
}

//go:build unix

package acceptance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste/dashboard"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
)

// statements counts the statements that a process sends to its database. The pool's pings of
// idle connections, which have no statement, do not count.
type statements struct{ n atomic.Int64 }

// TraceQueryStart implements pgx.QueryTracer.
func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// dashboardRole serves the dashboard, and at /cost the process's CPU time and its number of
// statements. It writes its address into a file before it is ready.
func dashboardRole(ctx context.Context, t task, ready func()) error {
	config, err := pgxpool.ParseConfig(t.URL)
	if err != nil {
		return err
	}
	sent := &statements{}
	config.ConnConfig.Tracer = sent
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	handler, err := dashboard.Handler(postgres.New(pool), dashboard.Config{Open: true})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(t.Dir, t.Name+".address"), []byte(listener.Addr().String()), 0o600); err != nil {
		return err
	}
	ready()
	mux := http.NewServeMux()
	mux.Handle("/", handler)
	mux.HandleFunc("/cost", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, int64(ownTime()), sent.n.Load()) })
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// viewed are the pages that follow the store.
var viewed = []string{"/", "/queues", "/queues/" + busyQueue, "/workers"}

// A hundred people who follow the pages cost the database at most 2 statements a second, and the
// server 5 % of a core.
func TestDB9_ViewersCostLittle(t *testing.T) {
	const viewers = 100
	during := size(20*time.Second, time.Minute)
	s := newStage(t)
	s.fill(size(100, 1000), size(10_000, 1_000_000), size(1_000, 100_000))
	s.spawn(task{Role: "dashboard", Name: "dashboard"})
	address, err := os.ReadFile(filepath.Join(s.dir, "dashboard.address"))
	s.must(err)
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	looks, opened := make(chan string, 1000*viewers), make(chan struct{}, 1000*viewers)
	for i := range viewers {
		all.Go(func() { watchPage(ctx, t, "http://"+string(address), viewed[i%len(viewed)], opened, looks) })
	}
	defer stop()
	await(s, opened, viewers)
	await(s, looks, viewers)
	cost := func() (used time.Duration, sent int64) {
		got, err := http.Get("http://" + string(address) + "/cost")
		s.must(err)
		defer got.Body.Close()
		_, err = fmt.Fscan(got.Body, (*int64)(&used), &sent)
		s.must(err)
		return used, sent
	}
	testrun.Timed(t, time.Second, func() string {
		used, sent := cost()
		seen, begun := len(looks), time.Now()
		testrun.Until(t, patience, "the time is over", func() bool { return time.Since(begun) > during })
		usedThen, sentThen := cost()
		took := time.Since(begun).Seconds()
		perSecond, core := float64(sentThen-sent)/took, (usedThen-used).Seconds()/took
		looked := len(looks) - seen
		t.Logf("%d looks, %.2f statements a second, %.1f %% of a core", looked, perSecond, 100*core)
		if want := int(viewers * took / 2 / 2); looked < want { // every 2 s
			t.Errorf("%d looks, want at least %d: nothing was measured", looked, want)
		}
		if perSecond > 2 {
			t.Errorf("%.2f statements a second, want at most 2", perSecond)
		}
		if full() && core > 0.05 {
			return fmt.Sprintf("the server used %.1f %% of a core, want at most 5 %%", 100*core)
		}
		return ""
	})
}

// await waits until a channel had n values more.
func await[T any](s *stage, from <-chan T, n int) {
	s.Helper()
	for range n {
		select {
		case <-from:
		case <-s.ctx.Done():
			s.Fatalf("it does not come to %d", n)
		}
	}
}

// watchPage shows a page as dashboard.js does: it holds a stream of events, and loads the page at
// each of them. It sends to opened when a stream is open, and to looks when it has loaded the page.
func watchPage(ctx context.Context, t *testing.T, base, path string, opened chan<- struct{}, looks chan<- string) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(path string, header ...string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
		if err != nil {
			t.Error(err)
			return nil
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		got, err := client.Do(r)
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return nil
		}
		if got.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", path, got.StatusCode)
		}
		return got
	}
	for ctx.Err() == nil { // a stream ends after some time
		stream := get("/events", "Accept", "text/event-stream")
		if stream == nil {
			return
		}
		opened <- struct{}{}
		for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
			if !strings.HasPrefix(lines.Text(), "event: look") {
				continue
			}
			page := get(path, "HX-Request", "true", "Accept", "text/html")
			if page == nil {
				break
			}
			body, err := io.ReadAll(page.Body)
			_ = page.Body.Close()
			if ctx.Err() == nil && (err != nil || !strings.Contains(string(body), `id="fresh"`)) {
				t.Errorf("%s: %v, %.500s", path, err, body)
			}
			looks <- path
		}
		_ = stream.Body.Close()
	}
}

// ownTime returns the CPU time of this process.
func ownTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // always succeeds
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

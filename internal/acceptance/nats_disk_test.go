//go:build unix

package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/worker"
)

// The servers' storage is full: sends fail and say so, accepted messages are handled, and then there
// is room again.
func TestNJ8_StorageFull(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "it fills a store for a minute; package nats tests the engine on each change")
	server := devbroker.Own(t, devbroker.StartNATS, fmt.Sprintf("jetstream: {store_dir: %q, max_file_store: 24MB}", t.TempDir()))
	n := natsStageOn(t, server.URL(), nil)
	queue := n.queue(manyAttempts)
	r, full := n.recorder(), make(chan struct{})
	n.work(queue, r, worker.Config{Lease: natsLease, Concurrency: 1}, func(ctx context.Context, _ posthaste.RawDelivery) error {
		select {
		case <-full:
		case <-ctx.Done():
		}
		return nil
	})
	ids := n.fill(queue)
	close(full)
	n.emptied(queue)
	n.until("there is room again", func() bool {
		id, err := n.large(queue)
		if err == nil {
			ids = append(ids, id)
		}
		return err == nil
	})
	n.emptied(queue)
	events := n.history()
	n.must(history.Merge(history.EveryOne(ids, events), history.NoOther(ids, events), history.Attempts(events, 0)))
	t.Logf("%d messages were accepted", len(ids))
}

// The disk of the server is full, until it gets room and the server is restarted: all accepted
// messages are there.
func TestNJ8_DiskFull(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "it fills a store for a minute; package nats tests the engine on each change")
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); errors.Is(err, syscall.EPERM) {
		t.Skip("a file system of the test's own needs root")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	server := devbroker.Own(t, devbroker.StartNATS, fmt.Sprintf("jetstream: {store_dir: %q, max_file_store: 1GB}", filepath.Join(dir, "streams")))
	n := natsStageOn(t, server.URL(), nil)
	queue := n.queue(manyAttempts)
	ids := n.fill(queue)
	n.must(unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=96m"))
	server.Shutdown()
	n.must(server.Start(n.ctx))
	r := n.recorder()
	n.work(queue, r, worker.Config{Lease: natsLease}, nothing)
	n.recorded(r, history.Handled, len(ids))
	n.until("messages are accepted again", func() bool {
		id, err := n.large(queue)
		if err == nil {
			ids = append(ids, id)
		}
		return err == nil
	})
	n.emptied(queue)
	n.must(history.Merge(history.EveryOne(ids, n.history())))
	t.Logf("%d messages were accepted", len(ids))
}

// large sends a message of 100 kB.
func (n *natsStage) large(queue string) (posthaste.MessageID, error) {
	ctx, cancel := context.WithTimeout(n.ctx, 3*time.Second)
	defer cancel()
	ids, err := posthaste.IDs(n.client.Send(ctx, posthaste.Message{Queue: queue, ContentType: posthaste.ContentTypeBytes, Payload: bytes.Repeat([]byte{7}, 100_000)}))
	if err != nil {
		return 0, err
	}
	return ids[0], nil
}

// fill sends until the storage is full. The error must say so.
func (n *natsStage) fill(queue string) (ids []posthaste.MessageID) {
	n.Helper()
	for unknowns := 0; len(ids) < 1000; {
		id, err := n.large(queue)
		if err == nil {
			ids = append(ids, id)
			continue
		}
		n.Logf("after %d messages: %v", len(ids), err)
		switch posthaste.CodeOf(err) {
		case posthaste.CodeUnavailable:
		case posthaste.CodeOutcomeUnknown:
			if unknowns++; unknowns < 3 {
				continue // of the next send the servers may tell more
			}
		default:
			n.Errorf("at full storage a send ends with %v", err)
		}
		if !strings.Contains(err.Error(), "storage") && !strings.Contains(err.Error(), "resource") && !strings.Contains(err.Error(), "disk") {
			n.Errorf("the error does not tell of storage: %v", err)
		}
		return ids
	}
	n.Fatal("the storage is never full")
	return nil
}

// tellsSync lets the servers' settings be read by the account that has the streams.
const tellsSync = `
accounts: {
  SYS: {users: [{user: sys, password: s}], exports: [{service: "$SYS.REQ.SERVER.PING.JSZ"}]}
  APP: {jetstream: enabled, users: [{user: app, password: a}], imports: [{service: {account: SYS, subject: "$SYS.REQ.SERVER.PING.JSZ"}}]}
}
system_account: SYS`

// The doctor tells streams with one replica, and servers that do not sync always, or that it cannot
// know.
func TestNJ8_Doctor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sync, further string
		want          string // in the finding about syncing; empty: none
	}{
		"not told":         {"", "", "unknown"},
		"not told, always": {", sync_interval: always", "", "unknown"},
		"default":          {"", tellsSync, "every 2m0s"},
		"always":           {", sync_interval: always", tellsSync, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := devbroker.Own(t, devbroker.StartNATS, fmt.Sprintf("jetstream: {store_dir: %q%s}%s", t.TempDir(), c.sync, c.further))
			url := server.URL()
			if c.further != "" {
				url = strings.Replace(url, "//", "//app:a@", 1)
			}
			n := natsStageOn(t, url, nil)
			queue := n.queue(posthaste.QueueOptions{})
			found, err := n.engine.Doctor(n.ctx)
			n.must(err)
			told := map[string]string{}
			for _, f := range found {
				told[f.Check] += f.Message
			}
			if !strings.Contains(told["replicas"], queue) {
				t.Errorf("one replica is not told: %+v", found)
			}
			if text, is := told["sync"]; is != (c.want != "") || !strings.Contains(text, c.want) {
				t.Errorf("about syncing it tells %q, want %q", text, c.want)
			}
		})
	}
}

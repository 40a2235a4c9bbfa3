package postgres

import (
	"context"
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// A process that polls holds no key, not even as long as a process keeps it after a Sleep:
// otherwise its senders would notify.
func TestPollingLetsGoOfKeys(t *testing.T) {
	b := newBellTest(t, 1)
	bell := b.open()
	commit := b.send("q0") // so that Sleep takes the doze key, which it keeps longest
	defer commit()
	found := func(context.Context) (posthaste.LookReply, error) { return posthaste.LookReply{Found: true}, nil }
	if err := bell.Sleep(testContext(t), "q0", found); err != nil {
		t.Fatal(err)
	}
	bell.LetGo("q0")
	if bell.keepsDoze("q0") {
		t.Error("the doze key is kept")
	}
	eventually(t, "both keys are free", func() bool { return b.holder("doze") == 0 && b.holder("bell") == 0 })
}

// One statement reports which of many subscriptions have messages to hand out. A subscription
// that is gone counts as ready, because its claim returns the error.
func TestProbe(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	url := emptyDB(t)
	conn := dial(t, url)
	mustMigrate(t, conn)
	mustExec(t, conn, `select posthaste.create_queue(name) from unnest(array['full', 'empty', 'paused', 'later']) name`)
	mustExec(t, conn, `select posthaste.subscribe('full', 'late')`)
	mustExec(t, conn, `select posthaste.send('full', '{}'), posthaste.send('paused', '{}'), posthaste.send('later', '{}', '{"delay": "1 hour"}')`)
	mustExec(t, conn, `select posthaste.pause_queue('paused')`)
	e := New(testPool(t, url, 1))
	refs := []posthaste.QueueRef{{Queue: "full"}, {Queue: "empty"}, {Queue: "gone"}, {Queue: "paused"}, {Queue: "later"}, {Queue: "full", Subscription: "late"}}
	ready, err := e.probe(ctx, refs)
	if want := []bool{true, false, true, false, false, true}; err != nil || !slices.Equal(ready, want) {
		t.Errorf("ready %v, %v; want %v", ready, err, want)
	}
}

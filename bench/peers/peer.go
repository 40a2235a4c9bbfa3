package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"github.com/jackc/pgx/v5"
)

// queue is the name of the one queue of every product.
const queue = "peers"

// The scenarios, in the order in which they run.
const (
	flow          = "flow"
	single        = "single"
	transactional = "transactional"
	latency       = "latency"
	idle          = "idle"
)

var scenarios = []string{flow, single, transactional, latency, idle}

// Rows of products that are measured in more than one setting.
const (
	only        = ""
	byDefault   = "default" // what the product does unless told otherwise
	best        = "best"    // the fastest setting that it documents
	own         = "own"     // Posthaste: each sender commits its own message
	client      = "client"  // Posthaste: senders share commits
	plainInsert = "1 insert"
	twoInserts  = "2 inserts"
)

// peer is one product. Its methods run in the process that measures.
type peer interface {
	about() about
	// rows names the settings in which a scenario is measured, none if it is not.
	rows(scenario string) []string
	// prepare fetches what go.mod does not bring. Its error says why the product has
	// no figures.
	prepare(ctx context.Context, t *tools) error
	// install makes the schema and the queue in a fresh database.
	install(ctx context.Context, o order) error
	// command is the program that sends or works.
	command(ctx context.Context) *exec.Cmd
}

// about describes a product.
type about struct {
	name, version string
	// producers is how many send batches at the same time, and limit how many messages
	// may wait before they pause.
	producers, limit int
	// noWorker says that nothing handles what is sent.
	noWorker bool
}

// goPeer is a product with an interface for Go. These methods run in processes of
// their own.
type goPeer interface {
	peer
	sender(ctx context.Context, o order) (sender, error)
	// work handles messages until ctx ends. It calls ready once it is about to wait
	// for the first one.
	work(ctx context.Context, o order, t *tally, ready func()) error
}

// sender sends by the interfaces of one product. Safe for concurrent use.
type sender interface {
	// batch commits messages with the product's bulk interface.
	batch(ctx context.Context, bodies []body) error
	// one commits one message.
	one(ctx context.Context, b body) error
	// within sends one message in the caller's transaction.
	within(ctx context.Context, tx pgx.Tx, b body) error
	close()
}

// fields are what a message holds.
type fields struct {
	Text string `json:"text"`
	// Sent is when, in ns on the clock of [monotonic]; 0 where it does not matter.
	Sent int64 `json:"sent,omitempty"`
}

// body is a message, for products that encode it and for those that are given JSON.
type body struct {
	fields
	json json.RawMessage
}

func newBody(text string, sent int64) body {
	b := body{fields: fields{text, sent}}
	b.json, _ = json.Marshal(b.fields) // a string and a number always can be
	return b
}

// jsons are the messages' bytes as strings, for parameters of type text[] and jsonb[].
func jsons(bodies []body) []string {
	all := make([]string, len(bodies))
	for i := range bodies {
		all[i] = string(bodies[i].json)
	}
	return all
}

// payloadBytes is the size of a message in JSON.
const payloadBytes = 200

// text fills a message up to payloadBytes.
func text(others int) string { return strings.Repeat("x", payloadBytes-others) }

var payload = newBody(text(len(`{"text":""}`)), 0)

// peers are all products, in the order of the first round.
var peers = []peer{posthasteMQ{}, plainTable{}, &pgque{}, &pgmq{}, riverQueue{}, watermill{}, graphileWorker, pgBoss}

func names() (all []string) {
	for _, p := range peers {
		all = append(all, p.about().name)
	}
	return all
}

func peerNamed(name string) (peer, error) {
	for _, p := range peers {
		if p.about().name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("unknown product %q; expected one of %s", name, strings.Join(names(), ", "))
}

// usual are the rows of products without rows of their own in flow, single and
// transactional.
func usual(scenario string) []string {
	if scenario == latency || scenario == idle {
		return []string{byDefault, best}
	}
	return []string{only}
}

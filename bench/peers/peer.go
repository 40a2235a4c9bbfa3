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

// Rows of products that are measured in several settings.
const (
	only        = ""
	byDefault   = "default" // the default settings of the product
	best        = "best"    // the fastest setting that it documents
	own         = "own"     // Posthaste: each sender commits its own message
	client      = "client"  // Posthaste: senders share commits
	plainInsert = "1 insert"
	twoInserts  = "2 inserts"
)

// peer is a product. Its methods run in the measuring process.
type peer interface {
	about() about
	// rows names the settings in which a scenario is measured. It is empty if the scenario is
	// not measured.
	rows(scenario string) []string
	// prepare fetches dependencies that are not in go.mod. Its error says why the product has
	// no figures.
	prepare(ctx context.Context, t *tools) error
	// install creates the schema and the queue in a new database.
	install(ctx context.Context, o order) error
	// command is the program that sends or handles messages.
	command(ctx context.Context) *exec.Cmd
}

// about describes a product.
type about struct {
	name, version string
	// producers is the number of concurrent senders of batches, and limit the number of
	// waiting messages at which they pause.
	producers, limit int
	// noWorker says that the messages are not handled.
	noWorker bool
}

// goPeer is a product with a Go interface. These methods run in separate processes.
type goPeer interface {
	peer
	sender(ctx context.Context, o order) (sender, error)
	// work handles messages until ctx ends. It calls ready just before it waits for the first
	// one.
	work(ctx context.Context, o order, t *tally, ready func()) error
}

// sender sends with the interfaces of one product. Safe for concurrent use.
type sender interface {
	// batch commits messages with the product's bulk interface.
	batch(ctx context.Context, bodies []body) error
	// one commits one message.
	one(ctx context.Context, b body) error
	// within sends one message in the caller's transaction.
	within(ctx context.Context, tx pgx.Tx, b body) error
	close()
}

// fields are the content of a message.
type fields struct {
	Text string `json:"text"`
	// Sent is the time of sending in ns, on the clock of [monotonic]; 0 if it is not needed.
	Sent int64 `json:"sent,omitempty"`
}

// body is a message, for products that encode it themselves and for those that take JSON.
type body struct {
	fields
	json json.RawMessage
}

func newBody(text string, sent int64) body {
	b := body{fields: fields{text, sent}}
	b.json, _ = json.Marshal(b.fields) // a string and a number can always be encoded
	return b
}

// jsons returns the messages in JSON as strings, for parameters of type text[] and jsonb[].
func jsons(bodies []body) []string {
	all := make([]string, len(bodies))
	for i := range bodies {
		all[i] = string(bodies[i].json)
	}
	return all
}

// payloadBytes is the size of a message in JSON.
const payloadBytes = 200

// text returns the text that fills a message up to payloadBytes.
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

// usual returns the rows of products without their own rows in flow, single and transactional.
func usual(scenario string) []string {
	if scenario == latency || scenario == idle {
		return []string{byDefault, best}
	}
	return []string{only}
}

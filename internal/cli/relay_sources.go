package cli

import (
	"context"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/brokers"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/source"
	"github.com/posthaste-mq/posthaste/worker"
)

// sourceTarget is the part of a source that all brokers share.
type sourceTarget struct {
	source.Config `yaml:",inline"`
	Broker        string `yaml:"broker"`
	// Chunks, if set, unpacks chunks with this encoding.
	Chunks *sourceChunks `yaml:"chunks"`
}

// sourceConfig is the parsed configuration of a source, with the place of each of its
// fields.
type sourceConfig struct {
	sourceTarget
	openBroker brokers.OpenSource
	place
}

// readSource parses one source.
func readSource(node *yaml.Node, broker string, place place) (sourceConfig, error) {
	c := sourceConfig{sourceTarget: sourceTarget{Broker: broker}, place: place}
	if node.Kind != yaml.MappingNode {
		return c, c.fault("queue", "a source must be a mapping", "for example queue: orders")
	}
	if err := node.Decode(&c.sourceTarget); err != nil {
		return c, c.fault("queue", strings.TrimPrefix(err.Error(), "yaml: "), "")
	}
	err := c.empty(node, "chunks", "encoding: json")
	if err != nil {
		return c, err
	}
	var kind *brokers.Kind
	if c.Broker, kind, err = c.broker(c.Broker); err != nil {
		return c, err
	}
	if kind.Source == nil {
		return c, c.fault("broker", "no source reads from "+kind.Name, "name another broker, or leave this source out")
	}
	options, open := kind.Source(c.Broker)
	if u := unknownKey(node, reflect.TypeOf(c.sourceTarget), reflect.TypeOf(options)); u != nil {
		return c, c.fault(u.key(), u.message()+" of a source from "+kind.Name, u.hint())
	}
	if err := node.Decode(options); err != nil {
		return c, c.fault("queue", strings.TrimPrefix(err.Error(), "yaml: "), "")
	}
	c.openBroker = open
	_, err = c.open(nil, nil, posthaste.NoTelemetry{}, 0)
	return c, err
}

// open returns the source, which connects when it runs.
func (c *sourceConfig) open(ledger source.Ledger, log *slog.Logger, telemetry posthaste.Telemetry, grace time.Duration) (*source.Source, error) {
	shared := c.Config
	shared.Grace, shared.Telemetry, shared.Logger = grace, telemetry, log
	if c.Chunks != nil {
		codec, err := chunkCodec(c.place, c.Chunks.Encoding)
		if err != nil {
			return nil, err
		}
		shared.Unpack = relay.Chunks{Codec: codec}.Unpack
	}
	s, err := c.openBroker(ledger, shared)
	return s, c.placed(err)
}

// withSources runs a worker and sources.
type withSources struct {
	worker  *worker.Worker // nil if there are no relays
	sources []*source.Source
	started chan struct{}
}

// Run implements [runner]. Everything ends with ctx, or with the worker.
func (w *withSources) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for _, s := range w.sources {
		all.Go(func() { _ = s.Run(ctx) }) // it fails only if it runs twice
	}
	if w.worker == nil {
		close(w.started)
		<-ctx.Done()
		return nil
	}
	return w.worker.Run(ctx)
}

// Started implements [runner].
func (w *withSources) Started() <-chan struct{} {
	if w.worker == nil {
		return w.started
	}
	return w.worker.Started()
}

// openSources adds sources to a worker, and checks their configurations with their brokers.
func openSources(ctx context.Context, run *worker.Worker, w workerParts, configs []sourceConfig, like worker.Config) (runner, error) {
	if len(configs) == 0 {
		return run, nil
	}
	out := &withSources{worker: run, started: make(chan struct{})}
	if len(run.Reads()) == 0 {
		out.worker = nil
	}
	for i := range configs {
		c := &configs[i]
		s, err := c.open(w.engine, w.log, like.Telemetry, max(like.Grace, time.Millisecond))
		if err != nil {
			return nil, err
		}
		looking, cancel := context.WithTimeout(ctx, checkTimeout)
		err = s.Check(looking)
		cancel()
		switch {
		case posthaste.CodeOf(err) == posthaste.CodeUnavailable:
			w.log.Warn("the broker is unavailable; retrying", "queue", c.Queue, "error", err)
		case err != nil:
			return nil, c.placed(err)
		}
		w.broker(c.Queue, s.Address(), s.Away)
		if w.metrics != nil {
			w.metrics.ExpectSource(c.Queue, s.Address())
		}
		out.sources = append(out.sources, s)
	}
	return out, nil
}

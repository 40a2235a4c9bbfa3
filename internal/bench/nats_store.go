package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/cpumeter"
	"github.com/posthaste-mq/posthaste/nats"
)

// natsStore is the NATS servers of one run, with the run's streams.
type natsStore struct {
	url    string
	prefix string
	engine *nats.Engine
	// conn and js are used for everything except for the engine.
	conn    *natsgo.Conn
	js      jetstream.JetStream
	servers int
	meters  []cpumeter.Meter
	stop    func() // ends the servers; nil if the options name them
	dir     string // of those servers, removed at the end
}

// openNATSStore starts the installed server, or three as a cluster, or connects to the given ones.
func openNATSStore(ctx context.Context, r *run) (_ *natsStore, err error) {
	s := &natsStore{url: r.o.NATSURL, prefix: "posthaste-bench-" + token(), servers: r.o.Servers}
	defer func() {
		if err != nil {
			err = errors.Join(err, closed(ctx, s))
		}
	}()
	m := &r.result.Machine
	m.Cores = runtime.NumCPU()
	if s.url == "" {
		m.Embedded = true
		if err := s.start(ctx, r); err != nil {
			return nil, err
		}
	}
	if s.engine, err = nats.Open(ctx, s.url, nats.WithPrefix(s.prefix)); err != nil {
		return nil, err
	}
	if s.conn, err = natsgo.Connect(s.url, natsgo.ReconnectBufSize(-1)); err != nil {
		return nil, err
	}
	m.NATSVersion = s.conn.ConnectedServerVersion()
	s.js, err = jetstream.New(s.conn, jetstream.WithPublishAsyncMaxPending(natsOutstanding))
	return s, err
}

// start starts the servers of this machine for the run.
func (s *natsStore) start(ctx context.Context, r *run) (err error) {
	if s.dir, err = clusterDir(r.o.DataDir); err != nil {
		return err
	}
	var pids []int
	if s.url, pids, s.stop, err = startNATSServers(ctx, s.dir, s.servers); err != nil {
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "nats_url", Message: err.Error(), Hint: "install it, or name a server with --nats-url"}
	}
	for _, pid := range pids {
		s.meters = append(s.meters, cpumeter.Process(pid, "nats-server"))
	}
	if inMemory(s.dir) {
		r.invalid("the data is in memory (%s), where a write to a file costs nothing: choose another data directory", s.dir)
	}
	return r.result.Machine.measureFsync(s.dir)
}

// used returns the CPU time of all servers, and whether it is known.
func (s *natsStore) used() (total time.Duration, known bool) {
	for _, m := range s.meters {
		one, ok := m.Total()
		if !ok {
			return 0, false
		}
		total += one
	}
	return total, len(s.meters) > 0
}

// close ends the servers, or removes the run's streams from given ones. It may be called on a
// store that did not open.
func (s *natsStore) close(ctx context.Context) (err error) {
	if s.engine != nil {
		s.engine.Close()
	}
	if s.js != nil && s.dir == "" {
		err = s.remove(ctx)
	}
	if s.conn != nil {
		s.conn.Close()
	}
	return errors.Join(err, endServers(s.stop, s.dir))
}

// remove removes all streams of the run.
func (s *natsStore) remove(ctx context.Context) (err error) {
	names := s.js.StreamNames(ctx)
	for name := range names.Name() {
		if ours(name, s.prefix) {
			err = errors.Join(err, s.js.DeleteStream(ctx, name))
		}
	}
	if err = errors.Join(err, names.Err()); err != nil {
		return fmt.Errorf("streams whose names contain %s are left behind: %w", s.prefix, err)
	}
	return nil
}

// lead makes the connected server the leader of a stream in a cluster, and of its consumer that
// delivers, so that messages of both sides take the same way.
func (s *natsStore) lead(ctx context.Context, stream jetstream.Stream) error {
	if s.servers == 1 {
		return nil
	}
	name, of := s.conn.ConnectedServerName(), stream.CachedInfo().Config.Name
	for _, group := range []struct {
		path string
		info func() (*jetstream.ClusterInfo, error)
	}{
		{"STREAM.LEADER.STEPDOWN." + of, func() (*jetstream.ClusterInfo, error) {
			info, err := stream.Info(ctx)
			if err != nil {
				return nil, err
			}
			return info.Cluster, nil
		}},
		{"CONSUMER.LEADER.STEPDOWN." + of + "." + natsConsumer, func() (*jetstream.ClusterInfo, error) {
			c, err := stream.Consumer(ctx, natsConsumer)
			if err != nil {
				return nil, err
			}
			return c.CachedInfo().Cluster, nil
		}},
	} {
		for {
			at, err := group.info()
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), err)
			}
			if err == nil && (at == nil || at.Leader == name) {
				break
			}
			// There may be no leader for a moment.
			_, _ = s.conn.RequestWithContext(ctx, "$JS.API."+group.path, []byte(`{"placement": {"preferred": "`+name+`"}}`))
			if err := pause(ctx, 300*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// natsConsumer is the consumer of a queue that delivers its messages.
const natsConsumer = "sub-default-0"

// ours reports whether a stream belongs to a store with a prefix.
func ours(stream, prefix string) bool {
	for _, begin := range []string{prefix + "-", "KV_" + prefix + "-"} {
		if len(stream) > len(begin) && stream[:len(begin)] == begin {
			return true
		}
	}
	return false
}

// natsRaw is a stream with the configuration of a queue's, with the same consumers.
type natsRaw struct {
	*natsStore
	stream   jetstream.Stream
	consumer jetstream.Consumer // that delivers
	subject  string
	header   string // what the engine puts into the header Posthaste
}

// queueStream returns the stream of a queue of the engine.
func (s *natsStore) queueStream(ctx context.Context, queue string) (jetstream.Stream, error) {
	name, err := s.js.StreamNameBySubject(ctx, s.prefix+".queue."+queue+".>")
	if err != nil {
		return nil, err
	}
	return s.js.Stream(ctx, name)
}

// openRaw makes a stream like that of a queue, which has one message.
func (s *natsStore) openRaw(ctx context.Context, queue string) (*natsRaw, error) {
	like, err := s.queueStream(ctx, queue)
	if err != nil {
		return nil, err
	}
	last, err := like.GetLastMsgForSubject(ctx, s.prefix+".queue."+queue+".q.0")
	if err != nil {
		return nil, err
	}
	r := &natsRaw{natsStore: s, subject: s.prefix + ".queue.raw.q.0", header: last.Header.Get("Posthaste")}
	c := like.CachedInfo().Config
	c.Name, c.Subjects = s.prefix+"-q-raw", []string{s.prefix + ".queue.raw.>"}
	if r.stream, err = s.js.CreateStream(ctx, c); err != nil {
		return nil, err
	}
	all := like.ListConsumers(ctx)
	for info := range all.Info() {
		c, err := r.stream.CreateConsumer(ctx, likewise(info.Config, len(s.prefix+".queue."+queue), s.prefix+".queue.raw"))
		if err != nil {
			return nil, err
		}
		if info.Config.Durable == natsConsumer {
			r.consumer = c
		}
	}
	if err := all.Err(); err != nil {
		return nil, err
	}
	if r.consumer == nil {
		return nil, fmt.Errorf("the queue %s has no consumer %s", queue, natsConsumer)
	}
	return r, errors.Join(s.lead(ctx, like), s.lead(ctx, r.stream), like.Purge(ctx))
}

// likewise returns the configuration of a consumer with other subjects: their first bytes are replaced.
func likewise(c jetstream.ConsumerConfig, first int, by string) jetstream.ConsumerConfig {
	if c.FilterSubject != "" {
		c.FilterSubject = by + c.FilterSubject[first:]
	}
	filters := make([]string, len(c.FilterSubjects))
	for i, f := range c.FilterSubjects {
		filters[i] = by + f[first:]
	}
	c.FilterSubjects = filters
	return c
}

// message returns a message with the header and the payload of the engine's.
func (r *natsRaw) message() *natsgo.Msg {
	return &natsgo.Msg{Subject: r.subject, Header: natsgo.Header{"Posthaste": {r.header}}, Data: payload}
}

// batch stores n messages as one atomic batch.
func (r *natsRaw) batch(ctx context.Context, n int) error {
	id := natsgo.NewInbox()[len(natsgo.InboxPrefix):]
	for i := range n - 1 {
		m := r.message()
		m.Header.Set("Nats-Batch-Id", id)
		m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
		if err := r.conn.PublishMsg(m); err != nil {
			return err
		}
	}
	m := r.message()
	m.Header.Set("Nats-Batch-Id", id)
	m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(n))
	m.Header.Set("Nats-Batch-Commit", "1")
	_, err := r.js.PublishMsg(ctx, m) // it waits for the confirmation
	return err
}

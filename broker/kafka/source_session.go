package kafka

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/source"
)

// sourceBroker is a checked SourceConfig. It implements [source.Broker].
type sourceBroker struct {
	SourceConfig
	address            string // of the brokers
	createRefused      bool   // create a missing topic for refused records
	options, consuming []kgo.Opt
	connections        connections
}

// connections counts the connections to brokers, which the client reopens below a
// session. It implements hooks of kgo.
type connections struct {
	open   atomic.Int64
	failed atomic.Bool // the latest one could not be opened
}

// OnBrokerConnect implements [kgo.HookBrokerConnect]. A connection that was opened and
// then failed has both an error and a disconnect.
func (c *connections) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, conn net.Conn, err error) {
	if conn != nil {
		c.open.Add(1)
	}
	c.failed.Store(err != nil)
}

// OnBrokerDisconnect implements [kgo.HookBrokerDisconnect].
func (c *connections) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) { c.open.Add(-1) }

// Away reports whether there is no connection and none could be opened. See
// [source.Broker].
func (b *sourceBroker) Away() bool {
	return b.connections.failed.Load() && b.connections.open.Load() <= 0
}

// Kind implements [source.Broker].
func (b *sourceBroker) Kind() string { return "kafka" }

// Address implements [source.Broker].
func (b *sourceBroker) Address() string { return b.address }

// fault is an error in the configuration.
type fault struct {
	error
	field, hint string
}

func (f *fault) Unwrap() error { return f.error }

// Check implements [source.Broker].
func (b *sourceBroker) Check(ctx context.Context) error {
	s, err := b.open(ctx, false)
	if err == nil {
		s.client.Close()
		return nil
	}
	var f *fault
	if errors.As(err, &f) {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: f.field, Message: err.Error(), Hint: f.hint, Cause: err}
	}
	return connectError(err)
}

// session is a member of the group. It implements [source.Session]. The client reopens
// lost connections below it.
type session struct {
	*sourceBroker
	client *kgo.Client
	id     string // of the topic, because the offsets of a recreated one begin at 0 again
	lost   atomic.Bool
	// open holds the records that were read and whose offsets are not committed, by
	// partition, in order.
	open map[int32][]*record
	held int // how many of them are not acknowledged
}

type record struct {
	offset       int64
	epoch        int32
	acknowledged bool
}

// Open implements [source.Broker].
func (b *sourceBroker) Open(ctx context.Context) (source.Session, error) { return b.open(ctx, true) }

func (b *sourceBroker) open(ctx context.Context, consume bool) (*session, error) {
	options := b.options
	if consume {
		options = append(options[:len(options):len(options)], b.consuming...)
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, brokerError(b.address, err)
	}
	s := &session{sourceBroker: b, client: client, open: map[int32][]*record{}}
	ctx, cancel := context.WithTimeout(ctx, b.DialTimeout)
	defer cancel()
	if err := client.Ping(ctx); err == nil {
		err = s.prepare(ctx)
		if err == nil {
			return s, nil
		}
		client.CloseAllowingRebalance()
		return nil, brokerError(b.address, err)
	} else if client.CloseAllowingRebalance(); ctx.Err() == nil {
		return nil, brokerError(b.address, err)
	}
	return nil, brokerError(b.address, fmt.Errorf("no response: %w", ctx.Err()))
}

// prepare checks both topics, and creates the one for refused records if it is missing.
func (s *session) prepare(ctx context.Context) error {
	found, err := describeTopic(ctx, s.client, s.Topic)
	if err != nil {
		if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.TopicAuthorizationFailed) {
			return &fault{fmt.Errorf("topic %q: %w", s.Topic, err), "topic", "create the topic or name an existing one, and allow the user to read it"}
		}
		return err
	}
	s.id = hex.EncodeToString(found.TopicID[:6])
	_, err = describeTopic(ctx, s.client, s.Refused)
	if errors.Is(err, kerr.UnknownTopicOrPartition) && s.createRefused {
		request := kmsg.NewPtrCreateTopicsRequest()
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = s.Refused, -1, -1 // the defaults of the brokers
		limit := fmt.Sprint(maxRefusedBytes)
		topic.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "max.message.bytes", Value: &limit}}
		request.Topics = append(request.Topics, topic)
		var answer *kmsg.CreateTopicsResponse
		if answer, err = request.RequestWith(ctx, s.client); err == nil && len(answer.Topics) == 1 {
			err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
		}
		if errors.Is(err, kerr.TopicAlreadyExists) {
			err = nil
		}
	}
	var refusal *kerr.Error
	if errors.As(err, &refusal) && !refusal.Retriable || errors.Is(err, kerr.UnknownTopicOrPartition) {
		return &fault{fmt.Errorf("topic %q: %w", s.Refused, err), "refused", "create the topic, allow the user to write to it, or name another one"}
	}
	return err
}

// Read implements [source.Session].
func (s *session) Read(ctx context.Context, most int) ([]source.Arrival, error) {
	for {
		fetched := s.client.PollRecords(ctx, most)
		var all []source.Arrival
		fetched.EachRecord(func(r *kgo.Record) {
			s.open[r.Partition] = append(s.open[r.Partition], &record{offset: r.Offset, epoch: r.LeaderEpoch})
			s.held++
			all = append(all, s.arrival(r))
		})
		if len(all) > 0 {
			return all, nil
		}
		s.client.AllowRebalance()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, e := range fetched.Errors() {
			s.lost.Store(true)
			return nil, brokerError(s.address, e.Err)
		}
	}
}

// arrival returns the message of a record.
func (s *session) arrival(r *kgo.Record) source.Arrival {
	in := relay.Incoming{MessageID: fmt.Sprintf("kafka/%s/%s/%d/%d", r.Topic, s.id, r.Partition, r.Offset), Payload: r.Value, Key: string(r.Key), Headers: make(map[string]string, len(r.Headers))}
	if !utf8.Valid(r.Key) {
		in.Key = base64.StdEncoding.EncodeToString(r.Key)
	}
	if in.Payload == nil {
		in.Payload = []byte{}
	}
	for _, h := range r.Headers {
		value := string(h.Value)
		switch {
		case h.Key == HeaderMessageID && value != "":
			in.MessageID = value
		case h.Key == HeaderContentType:
			in.ContentType = value
		case !utf8.ValidString(value):
			in.Headers[h.Key] = base64.StdEncoding.EncodeToString(h.Value)
		default:
			in.Headers[h.Key] = value
		}
	}
	m, err := in.Message(eventPrefix)
	return source.Arrival{Message: m, Err: err, Token: r}
}

// Acknowledge implements [source.Session]. It commits the offset up to which each
// partition was stored without a gap.
func (s *session) Acknowledge(ctx context.Context, arrived []source.Arrival) error {
	for _, a := range arrived {
		r := a.Token.(*kgo.Record)
		for _, o := range s.open[r.Partition] {
			if o.offset == r.Offset && !o.acknowledged {
				o.acknowledged = true
				s.held--
			}
		}
	}
	offsets := map[int32]kgo.EpochOffset{}
	for partition, open := range s.open {
		n := 0
		for n < len(open) && open[n].acknowledged {
			n++
		}
		if n > 0 {
			offsets[partition] = kgo.EpochOffset{Epoch: open[n-1].epoch, Offset: open[n-1].offset + 1}
			s.open[partition] = open[n:]
		}
	}
	if len(offsets) > 0 {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		var failed error
		s.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{s.Topic: offsets}, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
			failed = err
			if err != nil {
				return
			}
			for _, t := range answer.Topics {
				for _, p := range t.Partitions {
					failed = errors.Join(failed, kerr.ErrorForCode(p.ErrorCode))
				}
			}
		})
		if failed != nil {
			s.lost.Store(true)
			return brokerError(s.address, failed)
		}
	}
	if s.held == 0 {
		s.client.AllowRebalance()
	}
	return nil
}

// Refuse implements [source.Session].
func (s *session) Refuse(ctx context.Context, a source.Arrival, headers map[string]string) error {
	r := a.Token.(*kgo.Record)
	out := &kgo.Record{Topic: s.Refused, Key: r.Key, Value: r.Value, Headers: append([]kgo.RecordHeader(nil), r.Headers...)}
	for name, value := range headers {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := s.client.ProduceSync(ctx, out).FirstErr(); err != nil {
		s.lost.Store(true)
		return brokerError(s.address, err)
	}
	return nil
}

// Use implements [source.Session].
func (s *session) Use() bool { return !s.lost.Load() }

// Close implements [source.Session]. It leaves the group. Other members continue after
// the committed offsets.
func (s *session) Close() {
	s.lost.Store(true)
	s.client.CloseAllowingRebalance()
}

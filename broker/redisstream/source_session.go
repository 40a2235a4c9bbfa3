package redisstream

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/redis"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/source"
)

// sourceBroker is a checked SourceConfig. It implements [source.Broker].
type sourceBroker struct {
	SourceConfig
	options   *goredis.Options // without the address
	addresses []string         // of the servers in the URL
	takeovers *redis.Takeovers

	mu    sync.Mutex
	known []string // the servers of the cluster, if there is one
}

func newBroker(c SourceConfig, options *goredis.Options, addresses []string) *sourceBroker {
	b := &sourceBroker{SourceConfig: c, options: options, addresses: addresses}
	b.takeovers = redis.WatchTakeovers(b.connect, *options, addresses...)
	b.takeovers.Blocks = block
	return b
}

// Kind implements [source.Broker].
func (b *sourceBroker) Kind() string { return "redis" }

// Address implements [source.Broker].
func (b *sourceBroker) Address() string { return strings.Join(b.addresses, ",") }

func (b *sourceBroker) brokerError(err error) error {
	return fmt.Errorf("redis at %s: %w", b.Address(), err)
}

// client returns a client of a single connection, which is never reopened: a new session
// reads the unacknowledged entries again.
func (b *sourceBroker) client(address string) *goredis.Client {
	options := *b.options
	options.Addr = address
	var dialed atomic.Bool
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dialed.Swap(true) {
			return nil, errors.New("the connection was lost")
		}
		return b.takeovers.Dial(ctx, network, address)
	}
	return goredis.NewClient(&options)
}

// connect is a [redis.Dialer].
func (b *sourceBroker) connect(ctx context.Context, network, address string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: b.options.DialTimeout}
	if b.options.TLSConfig != nil {
		return (&tls.Dialer{NetDialer: plain, Config: b.options.TLSConfig}).DialContext(ctx, network, address)
	}
	return plain.DialContext(ctx, network, address)
}

// Check implements [source.Broker].
func (b *sourceBroker) Check(ctx context.Context) error {
	client, _, err := b.find(ctx, b.Stream)
	if err != nil {
		return b.connectError(err)
	}
	defer client.Close()
	kind, err := client.Type(ctx, b.Stream).Result()
	switch {
	case err != nil:
		return b.connectError(err)
	case kind != "stream":
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "stream", Message: b.brokerError(fmt.Errorf("%q is not a stream: its type is %s", b.Stream, kind)).Error(),
			Hint: "name an existing stream, or create it: XGROUP CREATE " + b.Stream + " " + b.Group + " 0 MKSTREAM"}
	}
	if err := b.join(ctx, client); err != nil {
		return b.connectError(err)
	}
	return nil
}

// connectError classifies an error: Invalid with the field and a hint if the configuration is
// at fault, Unavailable otherwise.
func (b *sourceBroker) connectError(err error) error {
	var authority *tls.CertificateVerificationError
	e := &posthaste.Error{Code: posthaste.CodeInvalid, Field: "url", Message: b.brokerError(err).Error(), Cause: err}
	_, moved := goredis.IsMovedError(err)
	switch {
	case errors.Is(err, errAlone):
		e.Hint = "name one server, the primary; or allow the user to run CLUSTER SLOTS (ACL: +cluster|slots)"
	case goredis.IsAuthError(err), goredis.IsPermissionError(err), goredis.HasErrorPrefix(err, "AUTH"), goredis.HasErrorPrefix(err, "Client sent AUTH"):
		e.Hint = "check user and password in the URL, percent-encoded, and which commands the user may use"
	case goredis.HasErrorPrefix(err, "DB"), goredis.HasErrorPrefix(err, "invalid DB"), goredis.HasErrorPrefix(err, "SELECT"):
		e.Hint = "check the number of the database, which is the URL's path"
	case moved:
		e.Hint = "this is a server of a Redis Cluster: allow the user to run CLUSTER SLOTS (ACL: +cluster|slots)"
	case errors.As(err, &authority):
		e.Hint = relay.HintCertificate
	default:
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: e.Message, Cause: err, Hint: "start the server, or check host and port in its URL"}
	}
	return e
}

// join creates the group if it does not exist.
func (b *sourceBroker) join(ctx context.Context, client *goredis.Client) error {
	err := client.XGroupCreate(ctx, b.Stream, b.Group, "0").Err()
	if goredis.HasErrorPrefix(err, "BUSYGROUP") {
		return nil
	}
	return err
}

// session reads on a connection of its own. It implements [source.Session].
type session struct {
	*sourceBroker
	client *goredis.Client
	alone  bool // there is no cluster
	lost   atomic.Bool
	// own is the id after which the session continues to read the entries that are
	// pending with this consumer; empty once all of them were read.
	own string
	// claim is the id at which it continues to look for entries of crashed consumers, and
	// looked is when it last reached the end.
	claim  string
	looked time.Time
	held   map[string]bool // ids of unacknowledged entries
}

// Open implements [source.Broker].
func (b *sourceBroker) Open(ctx context.Context) (source.Session, error) {
	client, alone, err := b.find(ctx, b.Stream)
	if err != nil {
		return nil, b.brokerError(err)
	}
	s := &session{sourceBroker: b, client: client, alone: alone, own: "0", claim: "0", held: map[string]bool{}}
	if err := b.join(ctx, s.client); err != nil {
		s.client.Close()
		return nil, b.brokerError(err)
	}
	return s, nil
}

// block is how long one command waits for entries. A command cannot be interrupted.
const block = 500 * time.Millisecond

// Read implements [source.Session]. It reads entries of crashed consumers before new ones.
func (s *session) Read(ctx context.Context, most int) ([]source.Arrival, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		entries, err := s.next(ctx, most)
		if errors.Is(err, goredis.Nil) {
			continue
		}
		if err != nil {
			s.lost.Store(true)
			return nil, s.brokerError(err)
		}
		var all []source.Arrival
		for _, e := range entries {
			if s.held[e.ID] = true; e.Values == nil {
				// The entry was deleted from the stream after a consumer had read it.
				if err := s.Acknowledge(ctx, []source.Arrival{{Token: e}}); err != nil {
					return nil, err
				}
				continue
			}
			all = append(all, s.arrival(e))
		}
		if len(all) > 0 {
			return all, nil
		}
	}
}

// next reads pending, claimed or new entries, in this order.
func (s *session) next(ctx context.Context, most int) ([]goredis.XMessage, error) {
	// Without cancellation, because the entries of a lost reply would stay pending.
	ctx = context.WithoutCancel(ctx)
	read := func(after string, wait time.Duration) ([]goredis.XMessage, error) {
		streams, err := s.client.XReadGroup(ctx, &goredis.XReadGroupArgs{Group: s.Group, Consumer: s.Consumer, Streams: []string{s.Stream, after}, Count: int64(most), Block: wait}).Result()
		if err != nil || len(streams) == 0 {
			return nil, err
		}
		return streams[0].Messages, nil
	}
	if s.own != "" {
		entries, err := read(s.own, -1)
		if err != nil || len(entries) > 0 {
			if len(entries) > 0 {
				s.own = entries[len(entries)-1].ID
			}
			return entries, err
		}
		s.own = ""
	}
	// Returned entries have an idle time above ClaimAfter.
	if s.claim != "0-0" || time.Since(s.looked) > min(s.ClaimAfter/10, 5*time.Second) {
		entries, after, err := s.client.XAutoClaim(ctx, &goredis.XAutoClaimArgs{Stream: s.Stream, Group: s.Group, Consumer: s.Consumer, MinIdle: s.ClaimAfter, Start: s.claim, Count: int64(most)}).Result()
		if err != nil {
			return nil, err
		}
		if s.claim = after; after == "0-0" {
			s.looked = time.Now()
		}
		if len(entries) > 0 {
			return entries, nil
		}
	}
	return read(">", block)
}

// arrival returns the message to send for an entry.
func (s *session) arrival(e goredis.XMessage) source.Arrival {
	in := relay.Incoming{MessageID: "redis/" + s.Stream + "/" + e.ID, Headers: make(map[string]string, len(e.Values))}
	whole := map[string]string{}
	payload := false
	for name, value := range e.Values {
		text, _ := value.(string)
		switch whole[name] = text; name {
		case FieldMessageID:
			in.MessageID = text
		case FieldContentType:
			in.ContentType = text
		case FieldPayload:
			in.Payload, payload = []byte(text), true
		default:
			in.Headers[name] = text
		}
	}
	if !payload {
		in.Headers, in.ContentType = nil, posthaste.ContentTypeJSON
		in.Payload, _ = json.Marshal(whole) // cannot fail for strings
	}
	m, err := in.Message(eventPrefix)
	return source.Arrival{Message: m, Err: err, Token: e}
}

// Acknowledge implements [source.Session].
func (s *session) Acknowledge(ctx context.Context, arrived []source.Arrival) error {
	ids := make([]string, len(arrived))
	for i, a := range arrived {
		ids[i] = a.Token.(goredis.XMessage).ID
	}
	if err := s.client.XAck(ctx, s.Stream, s.Group, ids...).Err(); err != nil {
		s.lost.Store(true)
		return s.brokerError(err)
	}
	for _, id := range ids {
		delete(s.held, id)
	}
	return nil
}

// Refuse implements [source.Session].
func (s *session) Refuse(ctx context.Context, a source.Arrival, headers map[string]string) error {
	e := a.Token.(goredis.XMessage)
	fields := make([]any, 0, 2*(len(e.Values)+len(headers)))
	for name, value := range e.Values {
		if _, ours := headers[name]; !ours {
			fields = append(fields, name, value)
		}
	}
	for name, value := range headers {
		fields = append(fields, name, value)
	}
	to := s.client
	if !s.alone { // another server may have the stream for refused entries
		client, _, err := s.find(ctx, s.Refused)
		if err != nil {
			return s.brokerError(err)
		}
		defer client.Close()
		to = client
	}
	if err := to.XAdd(ctx, &goredis.XAddArgs{Stream: s.Refused, Values: fields}).Err(); err != nil {
		s.lost.Store(true)
		return s.brokerError(err)
	}
	return nil
}

// Use implements [source.Session].
func (s *session) Use() bool { return !s.lost.Load() }

// Close implements [source.Session]. Other consumers can claim the held entries at once,
// or after ClaimAfter if the server cannot be told.
func (s *session) Close() {
	if s.lost.Swap(true) {
		_ = s.client.Close()
		return
	}
	defer s.client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if len(s.held) > 0 {
		args := []any{"XCLAIM", s.Stream, s.Group, s.Consumer, 0}
		for id := range s.held {
			args = append(args, id)
		}
		_ = s.client.Do(ctx, append(args, "IDLE", (24*time.Hour).Milliseconds(), "JUSTID")...).Err()
		return
	}
	// Delete the consumer only if it holds nothing, because its pending entries would be
	// deleted with it.
	pending, err := s.client.XPendingExt(ctx, &goredis.XPendingExtArgs{Stream: s.Stream, Group: s.Group, Start: "-", End: "+", Count: 1, Consumer: s.Consumer}).Result()
	if err == nil && len(pending) == 0 {
		_ = s.client.XGroupDelConsumer(ctx, s.Stream, s.Group, s.Consumer).Err()
	}
}

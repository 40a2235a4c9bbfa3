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

	"github.com/redis/go-redis/v9"

	posthaste "github.com/posthaste-mq/posthaste"
	servers "github.com/posthaste-mq/posthaste/internal/redis"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/source"
)

// broker is a checked Config. It implements [source.Broker].
type broker struct {
	Config
	options   *redis.Options // but for the address
	addresses []string       // of the servers in the URL
	takeovers *servers.Takeovers

	mu    sync.Mutex
	known []string // the servers of the cluster, if there is one
}

func newBroker(c Config, options *redis.Options, addresses []string) *broker {
	b := &broker{Config: c, options: options, addresses: addresses}
	b.takeovers = servers.WatchTakeovers(b.connect, *options, addresses...)
	b.takeovers.Blocks = block
	return b
}

// Kind implements [source.Broker].
func (b *broker) Kind() string { return "redis" }

// Address implements [source.Broker].
func (b *broker) Address() string { return strings.Join(b.addresses, ",") }

func (b *broker) said(err error) error { return fmt.Errorf("redis at %s: %w", b.Address(), err) }

// client is one of a single connection, which is not opened anew once it is lost: what
// was read on it is read again by a new session.
func (b *broker) client(address string) *redis.Client {
	options := *b.options
	options.Addr = address
	var dialed atomic.Bool
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dialed.Swap(true) {
			return nil, errors.New("the connection was lost")
		}
		return b.takeovers.Dial(ctx, network, address)
	}
	return redis.NewClient(&options)
}

// connect is a [servers.Dialer].
func (b *broker) connect(ctx context.Context, network, address string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: b.options.DialTimeout}
	if b.options.TLSConfig != nil {
		return (&tls.Dialer{NetDialer: plain, Config: b.options.TLSConfig}).DialContext(ctx, network, address)
	}
	return plain.DialContext(ctx, network, address)
}

// Check implements [source.Broker].
func (b *broker) Check(ctx context.Context) error {
	client, _, err := b.find(ctx, b.Stream)
	if err != nil {
		return b.atStart(err)
	}
	defer client.Close()
	kind, err := client.Type(ctx, b.Stream).Result()
	switch {
	case err != nil:
		return b.atStart(err)
	case kind != "stream":
		return &posthaste.Error{Code: posthaste.Invalid, Field: "stream", Message: b.said(fmt.Errorf("%q is no stream: its type is %s", b.Stream, kind)).Error(),
			Hint: "name a stream that is there, or make it: XGROUP CREATE " + b.Stream + " " + b.Group + " 0 MKSTREAM"}
	}
	if err := b.join(ctx, client); err != nil {
		return b.atStart(err)
	}
	return nil
}

// atStart says whether an error is one of the configuration.
func (b *broker) atStart(err error) error {
	var authority *tls.CertificateVerificationError
	e := &posthaste.Error{Code: posthaste.Invalid, Field: "url", Message: b.said(err).Error(), Cause: err}
	text := err.Error()
	switch {
	case strings.HasPrefix(text, "WRONGPASS"), strings.HasPrefix(text, "NOAUTH"), strings.HasPrefix(text, "NOPERM"), strings.Contains(text, "AUTH"):
		e.Hint = "check user and password in the URL, percent-encoded, and which commands the user may use"
	case strings.HasPrefix(text, "ERR DB"), strings.HasPrefix(text, "ERR invalid DB"), strings.HasPrefix(text, "ERR SELECT"):
		e.Hint = "check the number of the database, which is the URL's path"
	case errors.Is(err, errAlone):
		e.Hint = "name one server, the primary; or let the user run CLUSTER SLOTS (ACL: +cluster|slots)"
	case strings.HasPrefix(text, "MOVED"):
		e.Hint = "this is a server of a Redis Cluster: let the user run CLUSTER SLOTS (ACL: +cluster|slots)"
	case errors.As(err, &authority):
		e.Hint = "let the certificate be for the name in the URL, and by an authority that this machine trusts"
	default:
		return &posthaste.Error{Code: posthaste.Unavailable, Message: e.Message, Cause: err, Hint: "start the server, or check host and port in its URL"}
	}
	return e
}

// join makes the group, if there is none.
func (b *broker) join(ctx context.Context, client *redis.Client) error {
	err := client.XGroupCreate(ctx, b.Stream, b.Group, "0").Err()
	if err != nil && strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return nil
	}
	return err
}

// session reads on a connection of its own. It implements [source.Session].
type session struct {
	*broker
	client *redis.Client
	alone  bool // it is no cluster
	lost   atomic.Bool
	// own is after which of the entries that are pending with this consumer reading
	// goes on; "" once all of them were read.
	own string
	// claim is after which entry of others it goes on to look for those that died,
	// and looked when it was through the last time.
	claim  string
	looked time.Time
	held   map[string]bool // ids that were read and not acknowledged
}

// Open implements [source.Broker].
func (b *broker) Open(ctx context.Context) (source.Session, error) {
	client, alone, err := b.find(ctx, b.Stream)
	if err != nil {
		return nil, b.said(err)
	}
	s := &session{broker: b, client: client, alone: alone, own: "0", claim: "0", held: map[string]bool{}}
	if err := b.join(ctx, s.client); err != nil {
		s.client.Close()
		return nil, b.said(err)
	}
	return s, nil
}

// block is how long one command waits for entries: it cannot be interrupted.
const block = 500 * time.Millisecond

// Read implements [source.Session]. Entries of a consumer that died come before new
// ones.
func (s *session) Read(ctx context.Context, most int) ([]source.Arrival, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		entries, err := s.next(ctx, most)
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			s.lost.Store(true)
			return nil, s.said(err)
		}
		var all []source.Arrival
		for _, e := range entries {
			if s.held[e.ID] = true; e.Values == nil {
				// It was deleted from the stream after somebody had read it.
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

// next reads some entries, of one sort at a time.
func (s *session) next(ctx context.Context, most int) ([]redis.XMessage, error) {
	// What was read is not left to the end of a context: the reply would be lost.
	ctx = context.WithoutCancel(ctx)
	read := func(after string, wait time.Duration) ([]redis.XMessage, error) {
		streams, err := s.client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: s.Group, Consumer: s.Consumer, Streams: []string{s.Stream, after}, Count: int64(most), Block: wait}).Result()
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
	// What was given back is as if it had lain there for long.
	if s.claim != "0-0" || time.Since(s.looked) > min(s.ClaimAfter/10, 5*time.Second) {
		entries, after, err := s.client.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: s.Stream, Group: s.Group, Consumer: s.Consumer, MinIdle: s.ClaimAfter, Start: s.claim, Count: int64(most)}).Result()
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

// arrival makes what is sent of an entry.
func (s *session) arrival(e redis.XMessage) source.Arrival {
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
		in.Payload, _ = json.Marshal(whole) // of texts it does not fail
	}
	m, err := in.Message(eventPrefix)
	return source.Arrival{Message: m, Err: err, Token: e}
}

// Acknowledge implements [source.Session].
func (s *session) Acknowledge(ctx context.Context, arrived []source.Arrival) error {
	ids := make([]string, len(arrived))
	for i, a := range arrived {
		ids[i] = a.Token.(redis.XMessage).ID
	}
	if err := s.client.XAck(ctx, s.Stream, s.Group, ids...).Err(); err != nil {
		s.lost.Store(true)
		return s.said(err)
	}
	for _, id := range ids {
		delete(s.held, id)
	}
	return nil
}

// Refuse implements [source.Session].
func (s *session) Refuse(ctx context.Context, a source.Arrival, headers map[string]string) error {
	e := a.Token.(redis.XMessage)
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
	if !s.alone { // another server may have that stream
		client, _, err := s.find(ctx, s.Refused)
		if err != nil {
			return s.said(err)
		}
		defer client.Close()
		to = client
	}
	if err := to.XAdd(ctx, &redis.XAddArgs{Stream: s.Refused, Values: fields}).Err(); err != nil {
		s.lost.Store(true)
		return s.said(err)
	}
	return nil
}

// Use implements [source.Session].
func (s *session) Use() bool { return !s.lost.Load() }

// Close implements [source.Session]: others may take over at once what is held. What
// the server is not told they take over later.
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
	// A consumer that holds nothing is forgotten; forgotten with what it holds, that
	// would be lost.
	pending, err := s.client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: s.Stream, Group: s.Group, Start: "-", End: "+", Count: 1, Consumer: s.Consumer}).Result()
	if err == nil && len(pending) == 0 {
		_ = s.client.XGroupDelConsumer(ctx, s.Stream, s.Group, s.Consumer).Err()
	}
}

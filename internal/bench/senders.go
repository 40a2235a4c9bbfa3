package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/posthaste-mq/posthaste"
)

// The ways of scenario senders. Each call is its own transaction, except that Client.Send and
// the HTTP server combine concurrent calls.
const (
	plainRow = "plain insert"
	plainOne = "plain push to a list"
	byClient = "Client.Send"
	byHTTP   = "HTTP"
)

// senders compares ways to send outside of a transaction with each other and with a plain
// insert, or on Redis a push to a list.
func senders(ctx context.Context, r *run) (err error) {
	s, err := openSending(ctx, r, "senders")
	if err == nil {
		err = startHTTP(ctx, s)
	}
	if err == nil {
		callers(s)
		err = s.measure(ctx)
	}
	if s != nil {
		err = errors.Join(err, s.close())
	}
	if r.result.SendingResult != nil {
		r.result.ArrayOf = r.o.Batch
	}
	return err
}

// callers sets the ways.
func callers(s *sending) {
	plain := plainly(s)
	s.ways = []*sendWay{plain}
	kinds := []string{attended, unattended}
	if s.run.redis != nil { // unread messages would fill its memory
		kinds = kinds[:1]
	}
	client := posthaste.NewClient(s.engine)
	for _, kind := range kinds {
		own := s.sendsBy(s.engine, "Engine.Send", kind)
		s.ways = append(s.ways, own, s.sendsBy(client, byClient, kind), posting(s, byHTTP, kind, 1),
			posting(s, fmt.Sprintf("%s, arrays of %d", byHTTP, s.run.o.Batch), kind, s.run.o.Batch))
		for _, w := range s.ways {
			if w.Worker == kind {
				w.own = own
			}
			w.plain = plain
		}
	}
	s.main = s.ways[3] // single messages by HTTP, with a worker
}

// plainly returns the way that only stores a payload.
func plainly(s *sending) *sendWay {
	if s.run.redis == nil {
		return &sendWay{SendingWay: SendingWay{Way: plainRow}, once: func(ctx context.Context, i int) error {
			_, err := s.plain.conns[i].Exec(ctx, "plain", []byte(payload))
			return err
		}}
	}
	client, list := s.run.redis.client, s.run.redis.loopKey("plain")
	return &sendWay{SendingWay: SendingWay{Way: plainOne}, once: func(ctx context.Context, _ int) error {
		return client.RPush(ctx, list, []byte(payload)).Err()
	}, discard: func(ctx context.Context) error { return client.Unlink(ctx, list).Err() }}
}

// startHTTP starts the HTTP server, with a connection to it for each sender.
func startHTTP(ctx context.Context, s *sending) (err error) {
	if s.server, err = startChild(ctx, "server", order{home: s.at}); err != nil {
		return err
	}
	for range singles {
		s.posts = append(s.posts, newPosts(ctx, s.server.ready.Address))
	}
	return nil
}

// posting returns a way that sends messages with each request: one as an object, more as an
// array.
func posting(s *sending, name, kind string, messages int) *sendWay {
	requests := map[string][]byte{}
	for _, queue := range s.queues[kind] {
		requests[queue] = postRequest(s.server.ready.Address, queue, messages)
	}
	return &sendWay{SendingWay: SendingWay{Way: name, Worker: kind, HTTP: true}, messages: int64(messages),
		once: func(_ context.Context, i int) error { return s.posts[i].post(requests[s.queue(kind)]) }}
}

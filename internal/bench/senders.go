package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/posthaste-mq/posthaste"
)

// What the calls of senders do. Each is a transaction of its own, but for those that
// Client.Send and the HTTP server gather.
const (
	plainRow = "plain insert"
	plainOne = "plain push to a list"
	byClient = "Client.Send"
	byHTTP   = "HTTP"
)

// senders compares the ways to send that need no transaction of the caller's, with each
// other and with a plain insert, or on Redis a push to a list.
func senders(ctx context.Context, r *run) (err error) {
	s, err := openSending(ctx, r, "senders")
	if err == nil {
		err = s.startHTTP(ctx)
	}
	if err == nil {
		s.callers()
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

// callers makes the ways.
func (s *sending) callers() {
	plainly := s.plainly()
	s.ways = []*sendWay{plainly}
	kinds := []string{attended, unattended}
	if s.run.redis != nil { // what nobody reads would fill its memory
		kinds = kinds[:1]
	}
	client := posthaste.NewClient(s.engine)
	for _, kind := range kinds {
		own := s.sendsBy(s.engine, "Engine.Send", kind)
		s.ways = append(s.ways, own, s.sendsBy(client, byClient, kind), s.posting(byHTTP, kind, 1),
			s.posting(fmt.Sprintf("%s, arrays of %d", byHTTP, s.run.o.Batch), kind, s.run.o.Batch))
		for _, w := range s.ways {
			if w.Worker == kind {
				w.own = own
			}
			w.plain = plainly
		}
	}
	s.main = s.ways[3] // single messages by HTTP, with a worker
}

// plainly stores a payload where nothing handles it.
func (s *sending) plainly() *sendWay {
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

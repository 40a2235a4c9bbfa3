package bench

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/nats"
)

// natsPlace is a stream of NATS JetStream, in files.
type natsPlace struct {
	url  string
	conn *natsgo.Conn
	js   jetstream.JetStream
}

func openNATS(_ context.Context, _ *run, url string) (place, error) {
	conn, err := natsgo.Connect(url)
	if err != nil {
		return nil, notUsed(err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &natsPlace{url, conn, js}, nil
}

func (p *natsPlace) fresh(ctx context.Context) error {
	if err := p.js.DeleteStream(ctx, relayPlace); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	_, err := p.js.CreateStream(ctx, jetstream.StreamConfig{Name: relayPlace, Subjects: []string{relayPlace}})
	return err
}

func (p *natsPlace) count(ctx context.Context) (int64, error) {
	s, err := p.js.Stream(ctx, relayPlace)
	if err != nil {
		return 0, err
	}
	return int64(s.CachedInfo().State.Msgs), nil
}

func (p *natsPlace) sink(log *slog.Logger) (posthaste.Sink, error) {
	return nats.NewSink(nats.SinkConfig{URL: nats.URL(p.url), Subject: relayPlace, Logger: log})
}

func (p *natsPlace) close() {
	ctx, cancel := context.WithTimeout(context.Background(), clearing)
	defer cancel()
	_ = p.js.DeleteStream(ctx, relayPlace)
	p.conn.Close()
}

type natsPublisher struct {
	conn   *natsgo.Conn
	js     jetstream.JetStream
	window int
	ids    string // prefix of ids, because the stream drops ids that it knows
}

func (p *natsPlace) publisher(_ context.Context, window int) (publisher, error) {
	conn, err := natsgo.Connect(p.url)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(window+1))
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &natsPublisher{conn, js, window, natsgo.NewInbox() + "-"}, nil
}

func (p *natsPublisher) close() { p.conn.Close() }

func (p *natsPublisher) publish(ctx context.Context, until time.Time) (int64, error) {
	return flying(until, p.window, func(n int) (jetstream.PubAckFuture, error) {
		return p.js.PublishMsgAsync(&natsgo.Msg{Subject: relayPlace, Data: payload, Header: natsgo.Header{natsgo.MsgIdHdr: {p.ids + strconv.Itoa(n)},
			nats.HeaderContentType: {posthaste.ContentTypeJSON}, "posthaste-queue": {"relay"}}})
	}, func(ack jetstream.PubAckFuture) error { return acknowledged(ctx, ack) })
}

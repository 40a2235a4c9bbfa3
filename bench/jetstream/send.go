package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	sendTimeout = 3 * time.Second
	// sendLimit is how long one message is sent again; then its outcome stays unknown.
	sendLimit = 30 * time.Second
	recordTTL = "1800s"
	// wrongLastSequence is the server's error code for a record that exists. The similar 10164
	// means one that may yet fail.
	wrongLastSequence = 10071
)

// errExists means that the key's record exists.
var errExists = errors.New("the record exists")

// A sender sends at a steady rate and keeps the state of each message.
type sender struct {
	nc   *nats.Conn
	js   jetstream.JetStream
	last atomic.Uint64

	mu        sync.Mutex
	sent      map[uint64]*sent
	confirmed []confirmedKey
	repeats   int
	accepted  int
}

type confirmedKey struct {
	id uint64
	at time.Time
}

// run sends rate messages a second until ctx ends; each third has a key. It returns when every
// send has its outcome.
func (s *sender) run(ctx context.Context, rate int) {
	due := make(chan bool, rate)
	var senders sync.WaitGroup
	for range 64 {
		senders.Go(func() {
			for range due {
				s.send()
			}
		})
	}
	senders.Go(func() { s.repeat(ctx) })
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	owed, before := 0.0, time.Now()
	for ctx.Err() == nil {
		<-tick.C
		owed += time.Since(before).Seconds() * float64(rate)
		before = time.Now()
		for ; owed >= 1; owed-- {
			select {
			case due <- true:
			default: // every sender waits for a confirmation
			}
		}
	}
	close(due)
	senders.Wait()
}

// send sends one message, repeatedly until it is confirmed.
func (s *sender) send() {
	id := s.last.Add(1)
	m := &sent{keyed: id%3 == 0}
	s.mu.Lock()
	s.sent[id] = m
	s.mu.Unlock()
	for start := time.Now(); time.Since(start) < sendLimit; {
		s.mu.Lock()
		m.tries++
		s.mu.Unlock()
		err := s.plain(id)
		if m.keyed {
			err = s.keyed(id)
		}
		if err == nil || errors.Is(err, errExists) {
			s.mu.Lock()
			m.confirmed = true
			if m.keyed {
				s.confirmed = append(s.confirmed, confirmedKey{id, time.Now()})
			}
			s.mu.Unlock()
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func message(subject string, id uint64) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = make([]byte, 200)
	m.Header.Set(headerID, strconv.FormatUint(id, 10))
	return m
}

// plain sends without a record; the id covers the client's own repetition.
func (s *sender) plain(id uint64) error {
	if id%3 == 0 {
		return nil
	}
	m := message(queue, id)
	m.Header.Set(nats.MsgIdHdr, strconv.FormatUint(id, 10))
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	_, err := s.js.PublishMsg(ctx, m)
	return err
}

// keyed sends a message in an atomic batch with the record of its key.
func (s *sender) keyed(id uint64) error {
	batch := nats.NewInbox()[len(nats.InboxPrefix):]
	record := nats.NewMsg(records + strconv.FormatUint(id, 10))
	record.Header.Set("Nats-Expected-Last-Subject-Sequence", "0")
	record.Header.Set("Nats-TTL", recordTTL)
	m := message(queue, id)
	m.Header.Set("Nats-Batch-Commit", "1")
	for i, part := range []*nats.Msg{record, m} {
		part.Header.Set("Nats-Batch-Id", batch)
		part.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
	}
	if err := s.nc.PublishMsg(record); err != nil {
		return err
	}
	reply, err := s.nc.RequestMsg(m, sendTimeout)
	if err != nil {
		return err
	}
	var answer struct {
		Seq   uint64 `json:"seq"`
		Error *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return err
	}
	switch {
	case answer.Error != nil && answer.Error.Code == wrongLastSequence:
		return errExists
	case answer.Error != nil:
		return errors.New(answer.Error.Description)
	case answer.Seq == 0:
		return errors.New("the confirmation has no sequence")
	}
	return nil
}

// repeat sends confirmed batches again, from 5 s to the whole time after their confirmation.
func (s *sender) repeat(ctx context.Context) {
	for ctx.Err() == nil {
		pause(ctx, 100*time.Millisecond)
		s.mu.Lock()
		var old []confirmedKey
		if n := len(s.confirmed); n > 0 {
			old = s.confirmed[rand.IntN(n):][:1]
		}
		s.mu.Unlock()
		if len(old) == 0 || time.Since(old[0].at) < 5*time.Second {
			continue
		}
		err := s.keyed(old[0].id)
		s.mu.Lock()
		if err == nil {
			s.accepted++
			s.repeats++
		} else if errors.Is(err, errExists) {
			s.repeats++
		}
		s.mu.Unlock()
	}
}

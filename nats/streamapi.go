package nats

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
)

// rawEntry is an entry of a stream.
type rawEntry = jetstream.RawStreamMsg

// Bounds of reading, to find a message or to list messages.
const (
	scanMost  = 10_000
	scanBytes = 64 << 20
	// partMost and partBytes are those of one request.
	partMost  = 1000
	partBytes = 8 << 20
)

// direct requests entries and calls each with them. It returns how many more there are. The answer may be
// that of a server that lags behind the leader.
func (e *Engine) direct(ctx context.Context, stream string, request any, each func(*rawEntry)) (left uint64, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return 0, err
	}
	inbox := e.conn.NewInbox()
	answers, err := e.conn.SubscribeSync(inbox)
	if err != nil {
		return 0, e.readError(err)
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := answers.SetPendingLimits(-1, -1); err != nil {
		return 0, e.readError(err)
	}
	if err := e.conn.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, body); err != nil {
		return 0, e.readError(err)
	}
	for {
		m, err := e.nextAnswer(ctx, answers)
		if err != nil {
			return 0, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			entry, err := storedOf(m)
			if err != nil {
				return 0, err
			}
			each(entry)
		case "204": // all were sent
			left, err = strconv.ParseUint(m.Header.Get("Nats-Num-Pending"), 10, 64)
			return left, err
		case "404":
			return 0, nil
		case "503":
			return 0, unavailable("NATS does not answer", natsgo.ErrNoResponders)
		default:
			return 0, errors.New("nats: a direct get failed: " + status + " " + m.Header.Get("Description"))
		}
	}
}

func (e *Engine) nextAnswer(ctx context.Context, answers *natsgo.Subscription) (*natsgo.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m, err := answers.NextMsgWithContext(ctx)
	if errors.Is(err, natsgo.ErrNoResponders) {
		return nil, unavailable("NATS does not answer", err)
	}
	return m, e.readError(err)
}

func storedOf(m *natsgo.Msg) (*rawEntry, error) {
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return nil, errors.New("nats: an answer to a direct get has no sequence")
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	if err != nil {
		return nil, errors.New("nats: an answer to a direct get has no time")
	}
	return &rawEntry{Subject: m.Header.Get("Nats-Subject"), Sequence: seq, Header: m.Header, Data: m.Data, Time: at}, nil
}

// scan calls each with the entries that a filter selects, from a sequence on, oldest first. It stops after
// scanMost entries or scanBytes.
func (e *Engine) scan(ctx context.Context, stream, filter string, from uint64, each func(*rawEntry)) error {
	_, err := e.scanPart(ctx, stream, filter, from, each)
	return err
}

// scanPart is scan. It reports whether there are more entries.
func (e *Engine) scanPart(ctx context.Context, stream, filter string, from uint64, each func(*rawEntry)) (more bool, err error) {
	for count, size := 0, 0; count < scanMost && size < scanBytes; {
		last := uint64(0)
		left, err := e.direct(ctx, stream, map[string]any{"seq": max(from, 1), "next_by_subj": filter, "batch": min(partMost, scanMost-count), "max_bytes": partBytes}, func(m *rawEntry) {
			last = m.Sequence
			count++
			size += len(m.Data)
			each(m)
		})
		if err != nil || left == 0 || last == 0 {
			return false, err
		}
		from = last + 1
	}
	return true, nil
}

// countFrom returns how many entries a filter selects, from a sequence on.
func (e *Engine) countFrom(ctx context.Context, stream, filter string, from uint64) (n uint64, err error) {
	left, err := e.direct(ctx, stream, map[string]any{"seq": max(from, 1), "next_by_subj": filter, "batch": 1}, func(*rawEntry) { n++ })
	return n + left, err
}

// newestFrom returns the sequence at which the newest entries begin that a filter selects, at most most, and
// whether there are older ones.
func (e *Engine) newestFrom(ctx context.Context, stream, filter string, most uint64) (from uint64, older bool, err error) {
	n, err := e.countFrom(ctx, stream, filter, 1)
	if err != nil || n <= most {
		return 1, false, err
	}
	last, err := e.lastOn(ctx, stream, filter)
	if err != nil || last == nil {
		return 1, false, err
	}
	low, high := uint64(1), last.Sequence // from before low on there are too many, from high on there are not
	for low < high {
		middle := low + (high-low)/2
		if n, err = e.countFrom(ctx, stream, filter, middle); err != nil {
			return 0, false, err
		}
		if n > most {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return high, true, nil
}

// newest calls each with the newest entries that a filter selects, oldest first: at most scanMost, and of
// large ones as many as scanBytes has room for, or half of that. It reports whether there are older ones.
func (e *Engine) newest(ctx context.Context, stream, filter string, each func(*rawEntry)) (older bool, err error) {
	for most := uint64(scanMost); ; {
		from, cut, err := e.newestFrom(ctx, stream, filter, most)
		if err != nil {
			return false, err
		}
		var all []*rawEntry
		more, err := e.scanPart(ctx, stream, filter, from, func(m *rawEntry) { all = append(all, m) })
		if err != nil {
			return false, err
		}
		// With scanMost entries, those behind them have come meanwhile.
		if n := uint64(len(all)); more && n > 1 && n < scanMost {
			most = n / 2
			continue
		}
		for _, m := range all {
			each(m)
		}
		return cut, nil
	}
}

// lastOf returns the last entries on subjects, by subject. Subjects without an entry are missing.
func (e *Engine) lastOf(ctx context.Context, stream string, subjects []string) (map[string]*rawEntry, error) {
	found := map[string]*rawEntry{}
	for len(subjects) > 0 {
		some := subjects[:min(len(subjects), partMost)]
		before := len(found)
		left, err := e.direct(ctx, stream, map[string]any{"multi_last": some, "max_bytes": partBytes}, func(m *rawEntry) { found[m.Subject] = m })
		if err != nil {
			return nil, err
		}
		var again []string
		if left > 0 && len(found) > before { // the answer was cut by its size
			for _, s := range some {
				if found[s] == nil {
					again = append(again, s)
				}
			}
		}
		subjects = append(again, subjects[len(some):]...)
	}
	return found, nil
}

// subjectsUnder returns the subjects of entries that a filter selects.
func (e *Engine) subjectsUnder(ctx context.Context, stream, filter string) (all []string, err error) {
	for {
		var answer struct {
			Error *jetstream.APIError `json:"error"`
			Total int                 `json:"total"`
			State struct {
				Subjects map[string]uint64 `json:"subjects"`
			} `json:"state"`
		}
		if err := e.ask(ctx, "STREAM.INFO."+stream, map[string]any{"subjects_filter": filter, "offset": len(all)}, &answer); err != nil {
			return nil, err
		}
		if answer.Error != nil {
			return nil, e.readError(answer.Error)
		}
		for s := range answer.State.Subjects {
			all = append(all, s)
		}
		if len(answer.State.Subjects) == 0 || len(all) >= answer.Total {
			return all, nil
		}
	}
}

// deleteEntry removes an entry, and reports whether it existed. Of several calls only one removes it.
func (e *Engine) deleteEntry(ctx context.Context, stream string, seq uint64) (bool, error) {
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Success bool                `json:"success"`
	}
	if err := e.ask(ctx, "STREAM.MSG.DELETE."+stream, map[string]any{"seq": seq}, &answer); err != nil {
		if posthaste.CodeOf(err) == posthaste.CodeUnavailable {
			return false, outcomeUnknown(err)
		}
		return false, err
	}
	switch {
	case answer.Error == nil:
		return answer.Success, nil
	case answer.Error.ErrorCode == codeNoSequence, answer.Error.Description == "no message found": // the code of the latter is that of all its faults
		return false, nil
	}
	return false, e.readError(answer.Error)
}

// lastOn returns the last entry on a subject, or nil. The leader of the stream answers, while direct may get
// the answer of a server that lags.
func (e *Engine) lastOn(ctx context.Context, stream, subject string) (*jetstream.RawStreamMsg, error) {
	return e.leaderGet(ctx, stream, map[string]any{"last_by_subj": subject})
}

func (e *Engine) leaderGet(ctx context.Context, stream string, request any) (*jetstream.RawStreamMsg, error) {
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := e.readError(untilAnswered(ctx, func(ctx context.Context) error { return e.askOnce(ctx, "STREAM.MSG.GET."+stream, request, &answer) })); err != nil {
		return nil, err
	}
	switch {
	case answer.Error != nil && answer.Error.ErrorCode == codeNoMessage:
		return nil, nil
	case answer.Error != nil:
		return nil, e.readError(answer.Error)
	case answer.Message == nil:
		return nil, errors.New("nats: the answer has no message")
	}
	m := &jetstream.RawStreamMsg{Subject: answer.Message.Subject, Sequence: answer.Message.Seq, Data: answer.Message.Data, Time: answer.Message.Time}
	if len(answer.Message.Header) > 0 {
		header, err := natsgo.DecodeHeadersMsg(answer.Message.Header)
		if err != nil {
			return nil, err
		}
		m.Header = header
	}
	return m, nil
}

// ask calls the API of JetStream.
func (e *Engine) ask(ctx context.Context, what string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return e.readError(e.askOnce(ctx, what, request, answer))
}

// askOnce is ask with the errors of the client.
func (e *Engine) askOnce(ctx context.Context, what string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	reply, err := e.conn.RequestWithContext(ctx, "$JS.API."+what, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(reply.Data, answer)
}

// purge removes all entries that a filter selects, and returns how many.
func (e *Engine) purge(ctx context.Context, stream, subject string) (n int64, err error) {
	var answer struct {
		Error  *jetstream.APIError `json:"error"`
		Purged int64               `json:"purged"`
	}
	if err := e.ask(ctx, "STREAM.PURGE."+stream, map[string]any{"filter": subject}, &answer); err != nil {
		return 0, err
	}
	if answer.Error != nil {
		return 0, e.readError(answer.Error)
	}
	return answer.Purged, nil
}

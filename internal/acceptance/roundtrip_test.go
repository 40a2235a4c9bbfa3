//go:build unix

package acceptance

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/worker"
)

// parcel is the expected content of a message.
type parcel struct {
	payload     []byte
	contentType string // empty: JSON
	headers     map[string]string
	key         string // if the queue is ordered
}

func (p parcel) isJSON() bool { return p.contentType == "" }

// seedEnv repeats a run.
const seedEnv = "POSTHASTE_TEST_SEED"

func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	if text := os.Getenv(seedEnv); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("to repeat: %s=%d", seedEnv, seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// limit is a queue's default limit.
const limit = 1 << 20

// parcels returns JSON of every kind and bytes of every size.
func parcels(r *rand.Rand) (all []parcel) {
	for _, text := range []string{
		`1`, `0`, `""`, `null`, `true`, `{}`, `[]`, `9223372036854775807`, `-9223372036854775808`, `18446744073709551615`, `9007199254740993`,
		`{"id":9007199254740993,"ids":[9223372036854775807,-9223372036854775808]}`, `1e-7`, `0.1`, `1.50`, `123456789012345678901234567890`,
		`"é😀 \"\\\/\b\f\n\r\t"`, `"\u00e9\ud83d\ude00"`, `{"":{"a b":[null,[[]],{}]},"é":"\u2028"}`, ` [ 1 , 2 ] `, `"<script>&amp;"`, `"%s ' ; -- $1 \\x"`,
	} {
		all = append(all, parcel{payload: []byte(text)})
	}
	for range 25 {
		text, err := json.Marshal(randomJSON(r, 4))
		if err != nil {
			panic(err)
		}
		all = append(all, parcel{payload: text})
	}
	all = append(all, parcel{payload: []byte(`"` + strings.Repeat("x", limit-2) + `"`)})
	sizes := []int{1, 2, 3, 255, 256, 1999, 2000, 8191, 8192, 8193, 65536, limit - 1, limit}
	for range 8 {
		sizes = append(sizes, 1+r.IntN(20_000))
	}
	for _, size := range sizes {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		all = append(all, parcel{payload: b, contentType: []string{posthaste.ContentTypeBytes, "image/png", "text/plain; charset=utf-8"}[r.IntN(3)]})
	}
	all = append(all, parcel{payload: bytes.Repeat([]byte{0}, 1000), contentType: posthaste.ContentTypeBytes},
		parcel{payload: []byte{0xff}, contentType: posthaste.ContentTypeBytes}, parcel{payload: []byte(`\x00'`), contentType: posthaste.ContentTypeBytes})
	for i := range all {
		if r.IntN(2) == 0 {
			all[i].headers = map[string]string{"empty": "", "ünïcode": randomText(r), `quo"te\`: "a,{b}", "number": "9007199254740993"}
		}
	}
	return all
}

func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(20) {
		c := rune(1 + r.IntN(0x10fffe)) // PostgreSQL's jsonb has no NUL
		if utf8.ValidRune(c) {
			b.WriteRune(c)
		}
	}
	return b.String()
}

func randomJSON(r *rand.Rand, depth int) any {
	kind := r.IntN(7)
	if depth == 0 {
		kind = r.IntN(5)
	}
	switch kind {
	case 0:
		return json.Number(fmt.Sprint(int64(r.Uint64())))
	case 1:
		return r.NormFloat64() * 1e10
	case 2:
		return randomText(r)
	case 3:
		return r.IntN(2) == 0
	case 4:
		return nil
	case 5:
		list := make([]any, r.IntN(5))
		for i := range list {
			list[i] = randomJSON(r, depth-1)
		}
		return list
	}
	object := map[string]any{}
	for range r.IntN(5) {
		object[randomText(r)] = randomJSON(r, depth-1)
	}
	return object
}

// equalJSON compares JSON, with numbers by value, however long.
func equalJSON(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	x, errX := decodeJSON(a)
	y, errY := decodeJSON(b)
	return errX == nil && errY == nil && equalValues(x, y)
}

func decodeJSON(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return v, d.Decode(&v)
}

func equalValues(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		if !ok {
			return false
		}
		m, okM := new(big.Rat).SetString(string(x))
		n, okN := new(big.Rat).SetString(string(y))
		return okM && okN && m.Cmp(n) == 0
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equalValues(x[i], y[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k := range x {
			v, there := y[k]
			if !there || !equalValues(x[k], v) {
				return false
			}
		}
		return true
	}
	return a == b
}

// A message with any JSON, any bytes, 1 byte up to the limit, empty headers and 64-bit
// integers arrives exactly as sent, in every combination of Go, SQL and HTTP.
func TestDS9_ArrivesAsSent(t *testing.T) {
	t.Parallel()
	random := parcels(seeded(t))
	senders := map[string]func(*stage, string, parcel) posthaste.MessageID{"Go": sendByGo, "SQL": sendBySQL, "HTTP": sendByHTTP}
	receivers := map[string]func(*stage, string, int) map[posthaste.MessageID]parcel{"Go": receiveByGo, "SQL": receiveBySQL, "HTTP": receiveByHTTP}
	for from, send := range senders {
		for to, receive := range receivers {
			if onRedis(t) && (from == "SQL" || to == "SQL") {
				continue
			}
			check := func(t *testing.T, k kind) {
				t.Parallel()
				s := newStage(t)
				q := s.queueOf(k)
				sent := map[posthaste.MessageID]parcel{}
				for i, p := range random {
					if k.Ordered {
						p.key = fmt.Sprint("key ", i)
					}
					sent[send(s, q, p)] = p
				}
				got := receive(s, q, len(sent))
				if len(got) != len(sent) {
					t.Errorf("%d of %d arrived", len(got), len(sent))
				}
				for id, p := range sent {
					a, arrived := got[id]
					if !arrived {
						t.Errorf("message %s did not arrive", id)
						continue
					}
					same := bytes.Equal(a.payload, p.payload) && a.contentType == p.contentType
					if p.isJSON() {
						same = equalJSON(a.payload, p.payload) && a.isJSON()
					}
					if !same || !maps.Equal(a.headers, p.headers) {
						t.Errorf("sent %.200q %q %q, arrived %.200q %q %q", p.payload, p.contentType, p.headers, a.payload, a.contentType, a.headers)
					}
				}
			}
			t.Run(from+" to "+to, func(t *testing.T) { check(t, allKinds["plain"]) })
			// Queues of other kinds store and read differently: each sender and each receiver
			// is tested once with an ordered queue, and the other kinds once.
			others := map[string][]string{"GoSQL": {"ordered"}, "SQLHTTP": {"ordered", "several"}, "HTTPGo": {"ordered", "limited"}}
			if onRedis(t) {
				others = map[string][]string{"GoHTTP": {"ordered", "several"}, "HTTPGo": {"ordered", "limited"}}
			}
			for _, name := range others[from+to] {
				t.Run(from+" to "+to+" "+name, func(t *testing.T) {
					if name != "ordered" {
						testrun.Nightly(t, "another kind of queue with the same promise")
					}
					check(t, allKinds[name])
				})
			}
		}
	}
}

// arrived returns the parcel of a received message.
func arrived(payload []byte, contentType string, headers map[string]string) parcel {
	if contentType == posthaste.ContentTypeJSON {
		contentType = ""
	}
	return parcel{payload: payload, contentType: contentType, headers: headers}
}

func sendByGo(s *stage, q string, p parcel) posthaste.MessageID {
	m := posthaste.Message{Queue: q, Payload: p.payload, ContentType: p.contentType, Headers: p.headers, Key: p.key}
	if p.isJSON() {
		m.Payload = json.RawMessage(p.payload)
	}
	ids, err := posthaste.IDs(s.client.Send(s.ctx, m))
	s.must(err)
	return ids[0]
}

func sendBySQL(s *stage, q string, p parcel) posthaste.MessageID {
	options := map[string]any{}
	if p.headers != nil {
		options["headers"] = p.headers
	}
	if p.key != "" {
		options["key"] = p.key
	}
	function, payload := "send($1, $2::text::jsonb, $3::jsonb)", any(string(p.payload))
	if !p.isJSON() {
		options["content_type"] = p.contentType
		function, payload = "send_bytes($1, $2, $3::jsonb)", p.payload
	}
	conn := s.conn()
	defer conn.Close(s.ctx)
	return posthaste.MessageID(one[int64](s, conn, "select posthaste."+function, q, payload, options))
}

func sendByHTTP(s *stage, q string, p parcel) posthaste.MessageID {
	m := map[string]any{"payload": json.RawMessage(p.payload)}
	if !p.isJSON() {
		m["payload"], m["content_type"] = base64.StdEncoding.EncodeToString(p.payload), p.contentType
	}
	if p.headers != nil {
		m["headers"] = p.headers
	}
	if p.key != "" {
		m["key"] = p.key
	}
	body, err := json.Marshal(m)
	s.must(err)
	var sent struct{ ID posthaste.MessageID }
	s.must(json.Unmarshal(s.http().want(201, "POST", "/v1/queues/"+q+"/messages", string(body)).body, &sent))
	return sent.ID
}

func receiveByGo(s *stage, q string, n int) map[posthaste.MessageID]parcel {
	got := map[posthaste.MessageID]parcel{}
	came := make(chan posthaste.RawDelivery, n)
	w := worker.New(s.open(), worker.Config{Logger: s.log})
	worker.HandleRaw(w, q, func(_ context.Context, d posthaste.RawDelivery) error {
		came <- d
		return nil
	})
	s.run(w)
	for len(got) < n {
		select {
		case d := <-came:
			got[d.MessageID] = arrived(d.Payload, d.ContentType, d.Headers)
		case <-s.ctx.Done():
			return got
		}
	}
	return got
}

func receiveBySQL(s *stage, q string, n int) map[posthaste.MessageID]parcel {
	got := map[posthaste.MessageID]parcel{}
	conn := s.conn()
	s.untilAllCame(got, n, func() {
		rows, err := conn.Query(s.ctx, "select message_id, coalesce(payload, convert_to(payload_json::text, 'UTF8')), content_type, headers from posthaste.receive($1, 20, '1 hour')", q)
		s.must(err)
		_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (id int64, err error) {
			var payload []byte
			var contentType string
			var headers map[string]string
			err = row.Scan(&id, &payload, &contentType, &headers)
			got[posthaste.MessageID(id)] = arrived(payload, contentType, headers)
			return id, err
		})
		s.must(err)
	})
	return got
}

// untilAllCame receives until n messages have come and no more do.
func (s *stage) untilAllCame(got map[posthaste.MessageID]parcel, n int, receive func()) {
	s.Helper()
	s.until("all are received, and no more come", func() bool {
		for before := -1; before < len(got); {
			before = len(got)
			receive()
		}
		return len(got) >= n // less proves nothing: an answer may be empty all the same
	})
}

func receiveByHTTP(s *stage, q string, n int) map[posthaste.MessageID]parcel {
	got := map[posthaste.MessageID]parcel{}
	s.untilAllCame(got, n, func() {
		var list []struct {
			MessageID       posthaste.MessageID `json:"message_id"`
			Payload         json.RawMessage
			PayloadEncoding string `json:"payload_encoding"`
			ContentType     string `json:"content_type"`
			Headers         map[string]string
		}
		s.must(json.Unmarshal(s.http().want(200, "POST", "/v1/queues/"+q+"/receive", `{"max":20,"lease":"1h"}`).entries(s), &list))
		for _, d := range list {
			payload := []byte(d.Payload)
			if d.PayloadEncoding == "base64" {
				var text string
				s.must(json.Unmarshal(payload, &text))
				var err error
				payload, err = base64.StdEncoding.DecodeString(text)
				s.must(err)
			}
			got[d.MessageID] = arrived(payload, d.ContentType, d.Headers)
		}
	})
	return got
}

// A message of one byte above the limit is rejected by all three, and not stored.
func TestDS9_AboveTheLimit(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	q := s.queue(posthaste.QueueOptions{})
	tooMuch := bytes.Repeat([]byte("x"), limit+1)
	_, err := s.client.Send(s.ctx, posthaste.Message{Queue: q, Payload: tooMuch})
	if posthaste.CodeOf(err) != posthaste.CodeTooLarge {
		t.Errorf("Go was answered by %v", err)
	}
	if !s.redis() {
		if _, err := s.conn().Exec(s.ctx, "select posthaste.send_bytes($1, $2)", q, tooMuch); err == nil {
			t.Error("SQL took it")
		}
	}
	body := `{"content_type":"application/octet-stream","payload":"` + base64.StdEncoding.EncodeToString(tooMuch) + `"}`
	s.http().want(413, "POST", "/v1/queues/"+q+"/messages", body)
	reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: q}, Max: 10, Lease: time.Hour})
	got := reply.Deliveries
	s.must(err)
	if len(got) > 0 {
		t.Errorf("%d were stored", len(got))
	}
}

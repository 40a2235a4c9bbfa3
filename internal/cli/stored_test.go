//go:build unix

package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/redis"
)

// FT2: each list, page, export and metric can show every message that a sender can store.
func TestFT2_WhatIsStoredIsShown(t *testing.T) {
	t.Parallel()
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		url := testpg.New(t)
		engine, err := postgres.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(engine.Close)
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
		newStored(t, engine, conn).run()
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		r, err := devbroker.StartRedis(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Stop)
		engine, err := redis.Open(t.Context(), r.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(engine.Close)
		newStored(t, engine, nil).run()
	})
}

// stored generates messages, sends them over every interface, and reads them with every
// reader.
type stored struct {
	*testing.T
	engine posthaste.Store
	conn   *pgx.Conn // nil on Redis
	server *httptest.Server
	cli    *app
	out    bytes.Buffer
	r      *rand.Rand
	what   string // the last message, for failures
	sent   []posthaste.MessageID
	taken  int
	viewed bool
}

func newStored(t *testing.T, engine posthaste.Store, conn *pgx.Conn) *stored {
	seed := uint64(2) // the same on each change
	if testrun.Night() {
		seed = uint64(time.Now().UnixNano())
	}
	if text := os.Getenv("POSTHASTE_TEST_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("repeat it with POSTHASTE_TEST_SEED=%d", seed)
	s := &stored{T: t, engine: engine, conn: conn, r: rand.New(rand.NewPCG(seed, 0))}
	s.cli = &app{stdout: &s.out, stderr: &bytes.Buffer{}, log: slog.New(slog.DiscardHandler)}
	serve := serverFlags{listen: "127.0.0.1:0"}
	serve.limits.MaxWaiting = 10
	api, _, err := newAPI(s.cli, engine, serve, nil, nil, nil)
	s.must(err)
	s.server = httptest.NewServer(api)
	t.Cleanup(func() { s.server.Close(); api.Close() })
	s.must(makeEmails(t.Context(), engine, posthaste.QueueOptions{}))
	s.must(engine.CreateQueue(t.Context(), "jobs", posthaste.QueueOptions{MaxAttempts: 1}))
	return s
}

func (s *stored) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%v, at %s", err, s.what)
	}
}

func (s *stored) run() {
	cases := 500
	if testrun.Night() {
		cases = 10_000
	}
	for done := 0; done < cases; {
		for range min(max(250, cases/10), cases-done) {
			s.sendOne()
			done++
		}
		s.settle()
		s.readAll()
	}
	if s.taken < cases/5 || s.taken > cases*9/10 {
		s.Errorf("%d of %d were taken: the generator knows only one side of the limits", s.taken, cases)
	}
}

// sendOne sends one message over a random interface. A rejected message must fail with an
// error of Posthaste that names the cause.
func (s *stored) sendOne() {
	fields := s.fields()
	entrances := []func(map[string]any) error{s.sendHTTP, s.sendGo, s.sendMail}
	if s.conn != nil {
		entrances = append(entrances, s.sendSQL)
	}
	err := entrances[s.r.IntN(len(entrances))](fields)
	var e *posthaste.Error
	switch {
	case err == nil:
		s.taken++
	case !errors.As(err, &e) || e.Code != posthaste.CodeInvalid && e.Code != posthaste.CodeTooLarge && e.Code != posthaste.CodeUnsupported:
		s.Errorf("%s is refused with %v", s.what, err)
	case !utf8.ValidString(e.Message) || strings.Contains(e.Message, "invalid byte sequence") || strings.Contains(e.Message, "SQLSTATE"):
		s.Errorf("%s is refused with words of others: %v", s.what, err)
	}
}

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// fields generates options of a message in JSON form, most of them at a limit.
func (s *stored) fields() map[string]any {
	f := map[string]any{}
	some := func(name string, value func() any) {
		if s.r.IntN(6) == 0 {
			f[name] = value()
		}
	}
	for _, name := range []string{"key", "kind", "reference", "dedupe_key"} {
		some(name, func() any { return s.text(255) })
	}
	some("terms", func() any {
		terms := make([]any, pick(s.r, 0, 1, 3, 1000, 1001))
		for i := range terms {
			terms[i] = fmt.Sprint("term", i)
		}
		if len(terms) > 0 {
			terms[0] = s.text(255)
		}
		return terms
	})
	some("headers", func() any {
		headers := map[string]any{}
		for range s.r.IntN(4) {
			headers[pick(s.r, "a", "", "traceparent", "message-id", "X-Ä", "a b", "\x1b[31m", "__proto__", s.text(255))] = pick[any](s.r, s.text(255), s.text(16384), "v", 7)
		}
		return headers
	})
	some("content_type", func() any {
		return pick(s.r, "", "text/plain", "application/json", "APPLICATION/JSON; charset=utf-8", "application/x+json", "image/png", s.text(255))
	})
	some("priority", func() any { return pick(s.r, 0, 1, 3, 4, -1) })
	some("dedupe_window", func() any { return pick(s.r, "1 second", "365 days", "366 days", "0 s") })
	switch s.r.IntN(6) {
	case 0:
		f["delay"] = pick(s.r, "0 s", "1 microsecond", "30 seconds", "10000 days", "106751 days", "200000000 days", "-1 s", "1e3 s", s.text(20))
	case 1:
		f["send_at"] = pick(s.r, "9999-12-30T23:59:59.999999Z", "9999-12-31T00:00:00Z", "9999-12-31T23:59:59-10:00", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00",
			"0000-01-01T00:00:00Z", "1999-12-31t23:59:60z", "2030-02-29T00:00:00Z", "2999-01-01T00:00:00.123456789Z", "infinity", s.text(20))
	}
	return f
}

// text generates a text of at most limit bytes, or of one byte more.
func (s *stored) text(most int) string {
	if s.r.IntN(2) == 0 {
		return pick(s.r, "x", "", strings.Repeat("x", most), strings.Repeat("ü", most/2), "zoë \u202e\u2028", "'\"%s{{<b>", "\x1b[2J", "\r\n\t")
	}
	size := pick(s.r, 0, 1, 7, most-1, most, most, most+1)
	unit := pick(s.r, "x", "ü", "😀", "\u2028", "\x1b[2J", "\r\n", "\t", "\x00", "\xff", "\u202e", "<b>", "\\u0000", "'", "\"", "%s", "{{", "\ufffd", " ", "7")
	text := strings.Repeat(unit, size/len(unit)+1)[:size]
	if unit != "\xff" && s.r.IntN(8) > 0 {
		text = strings.ToValidUTF8(text, "")
	}
	return text
}

// payload generates JSON text, which can be invalid.
func (s *stored) payload() string {
	if s.r.IntN(2) == 0 {
		return pick(s.r, "null", "{}", `"text"`, "-0", "1e308", strings.Repeat("9", 308), "5e-324", strings.Repeat("[", 1000)+strings.Repeat("]", 1000))
	}
	deep := pick(s.r, 1, 10, 999, 1000, 1001, 9_000, 10_001)
	return pick(s.r, "null", "{}", `""`, `"text"`, "0", "-0", "1e308", "1.7976931348623157e308", "1e309", "-1e400", "5e-324", "1e-400", "0e-9999", "1e131000",
		strings.Repeat("9", 308), strings.Repeat("9", 400), "0."+strings.Repeat("3", 990), "0."+strings.Repeat("3", 1500), "9223372036854775808",
		strings.Repeat("[", deep)+strings.Repeat("]", deep), strings.Repeat(`{"a":`, deep)+"1"+strings.Repeat("}", deep),
		`"\u0000"`, `"\ud800"`, `"\udfff\ud800"`, `"\ud83d\ude00"`, `"\\u0000"`, `{"a":1,"a":2}`, `{"":{"":[]}}`, "\"\xff\"", `"`+"\u2028"+`"`, "[1,]", "", " 1 ", "\t[\n1]\r\n")
}

// sendHTTP posts to the queue. The encoder of Go replaces text that JSON cannot represent.
func (s *stored) sendHTTP(f map[string]any) error {
	encoded, err := json.Marshal(f)
	s.must(err)
	body := strings.TrimSuffix(string(encoded), "}")
	payload := s.payload()
	if contentType, _ := f["content_type"].(string); !posthaste.IsJSON(contentType) {
		payload = strconv.Quote(base64.StdEncoding.EncodeToString([]byte(payload)))
	}
	if body != "{" {
		body += ","
	}
	body += `"payload":` + payload + "}"
	s.what = fmt.Sprintf("POST %.3000q", body)
	return s.post("/v1/queues/jobs/messages", body)
}

// sendMail posts an e-mail with unusual texts.
func (s *stored) sendMail(f map[string]any) error {
	mail := map[string]any{"from": pick(s.r, "shop@example.com", "Ä Shop <shop@example.com>", s.text(320)), "to": []any{pick(s.r, "ada@example.com", "zoë@exämple.com", s.text(320))},
		"subject": s.text(998), "text": s.text(5000)}
	for _, name := range []string{"reference", "send_at", "delay"} {
		if value, is := f[name]; is {
			mail[name] = value
		}
	}
	body, err := json.Marshal(mail)
	s.must(err)
	s.what = fmt.Sprintf("POST mail %.3000q", body)
	return s.post("/v1/emails", string(body))
}

// post returns the problem of the response as an error.
func (s *stored) post(path, body string) error {
	answer, err := http.Post(s.server.URL+path, "application/json", strings.NewReader(body))
	s.must(err)
	defer answer.Body.Close()
	var told struct {
		ID            posthaste.MessageID
		Code          posthaste.Code
		Field, Detail string
	}
	s.must(json.NewDecoder(answer.Body).Decode(&told))
	if answer.StatusCode < 300 { // 200: a duplicate
		s.sent = append(s.sent, told.ID)
		return nil
	}
	return &posthaste.Error{Code: told.Code, Field: told.Field, Message: told.Detail}
}

// sendGo sends through the engine, which accepts arbitrary bytes.
func (s *stored) sendGo(f map[string]any) error {
	text := func(name string) string { value, _ := f[name].(string); return value }
	m := posthaste.Message{Queue: "jobs", Payload: json.RawMessage(s.payload()), Key: text("key"), Kind: text("kind"), Reference: text("reference"),
		DedupeKey: text("dedupe_key"), ContentType: text("content_type")}
	if s.r.IntN(3) == 0 {
		m.Payload = []byte(s.text(100_000))
	}
	m.Priority, _ = f["priority"].(int)
	terms, _ := f["terms"].([]any)
	for _, term := range terms {
		m.Terms = append(m.Terms, term.(string))
	}
	headers, _ := f["headers"].(map[string]any)
	for name, value := range headers {
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		m.Headers[name] = fmt.Sprint(value)
	}
	switch s.r.IntN(6) {
	case 0:
		m.Delay = pick(s.r, time.Nanosecond, time.Hour, 1<<62, 1<<63-1, -1)
	case 1:
		m.SendAt = time.Date(pick(s.r, -5000, 0, 1, 1970, 2030, 9999, 10_000, 200_000), 12, pick(s.r, 30, 31), 23, 59, 59, 1, time.FixedZone("", pick(s.r, 0, 14, -12)*3600))
	}
	s.what = fmt.Sprintf("Send %.3000q", fmt.Sprintf("%+v", m))
	ids, err := posthaste.IDs(s.engine.Send(s.Context(), m))
	s.sent = append(s.sent, ids...)
	return err
}

// sendSQL sends with the SQL functions and the role posthaste_sender.
func (s *stored) sendSQL(f map[string]any) error {
	options, err := json.Marshal(f)
	s.must(err)
	payload := s.payload()
	var id int64
	s.what = fmt.Sprintf("SQL %.2000q %.1000q", options, payload)
	tx, err := s.conn.Begin(s.Context())
	s.must(err)
	defer func() { _ = tx.Rollback(s.Context()) }()
	_, err = tx.Exec(s.Context(), "set local role posthaste_sender")
	s.must(err)
	switch s.r.IntN(3) {
	case 0:
		err = tx.QueryRow(s.Context(), "select posthaste.send('jobs', $1::text::jsonb, $2::text::jsonb)", payload, string(options)).Scan(&id)
	case 1:
		err = tx.QueryRow(s.Context(), "select posthaste.send_bytes('jobs', $1::bytea, $2::text::jsonb)", []byte(payload), string(options)).Scan(&id)
	default:
		err = tx.QueryRow(s.Context(), "select posthaste.send_many('jobs', jsonb_build_array($2::text::jsonb || jsonb_build_object('payload', $1::text::jsonb)))", payload, string(options)).Scan(&id)
	}
	if err == nil {
		s.must(tx.Commit(s.Context()))
		s.sent = append(s.sent, posthaste.MessageID(id))
		return nil
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch {
	case strings.HasPrefix(pg.Code, "PH4"), strings.HasPrefix(pg.Code, "PH5"):
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: pg.ColumnName, Message: pg.Message}
	case pg.Code[:2] == "22" || pg.Code == "54001": // the caller's own cast: no JSON, or too deep
		return &posthaste.Error{Code: posthaste.CodeInvalid, Message: "the cast failed"}
	}
	return err
}

// settle settles some messages in different ways, with unusual errors and receipts.
func (s *stored) settle() {
	for _, queue := range []string{"jobs", email.Queue} {
		reply, err := s.engine.Receive(s.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: queue}, Max: 40, Lease: time.Hour})
		s.must(err)
		var all []posthaste.Settlement
		for i, d := range reply.Deliveries {
			settlement := posthaste.Settlement{Delivery: d.ID, Outcome: pick(s.r, posthaste.OutcomeDone, posthaste.OutcomeDead), Error: s.text(4000)}
			if s.r.IntN(2) == 0 {
				settlement.Receipt = json.RawMessage(pick(s.r, `{"code":250}`, "1e308", s.payload()))
			}
			if i%4 != 0 {
				all = append(all, settlement)
			}
		}
		_, err = s.engine.Settle(s.Context(), all)
		s.must(err)
	}
}

// readAll reads the new messages with every reader. Each must show them.
func (s *stored) readAll() {
	s.what = "reading"
	_, err := s.engine.Maintain(s.Context(), posthaste.UpkeepSpace)
	s.must(err)
	for _, path := range []string{"/v1/queues", "/v1/queues/jobs", "/v1/messages?limit=1000", "/v1/messages?queue=jobs&limit=1000", "/v1/messages?state=dead&limit=1000", "/v1/dead-letters?limit=1000",
		"/v1/emails?limit=1000", "/v1/actions", "/v1/pauses", "/v1/queues/jobs/pauses", "/v1/schedules", "/v1/workers", "/v1/doctor"} {
		s.get(path)
	}
	if page := string(s.fetch("/metrics")); !strings.Contains(page, `posthaste_queue_sent_total{queue="jobs"`) || !strings.Contains(page, "posthaste_store_up 1") {
		s.Errorf("/metrics shows %.2000s", page)
	}
	for _, id := range s.sent {
		s.get("/v1/messages/" + id.String())
	}
	for _, s.cli.json = range []bool{true, false} {
		s.shown(listQueues(s.Context(), s.cli, s.engine, nil))
		s.shown(listMessages(s.Context(), s.cli, s.engine, posthaste.MessageFilter{Limit: 1000}, []posthaste.State{""}))
		s.shown(listDeadLetters(s.Context(), s.cli, s.engine, posthaste.DeadLetterFilter{Limit: 1000}))
		s.shown(listActions(s.Context(), s.cli, s.engine, posthaste.ActionFilter{Limit: 1000}))
		for i := 0; i < len(s.sent); i += 25 {
			s.shown(showMessage(s.Context(), s.cli, s.engine, s.sent[i]))
		}
	}
	if s.conn != nil {
		views := []string{"dead_letters", "queues", "list_messages(max => 1000)", "list_dead_letters(max => 1000)"}
		if !s.viewed { // once, because it takes long for many messages
			views, s.viewed = append(views, "messages"), true
		}
		for _, view := range views {
			_, err := s.conn.Exec(s.Context(), "select x::text, to_jsonb(x)::text from posthaste."+view+" x")
			s.must(err)
		}
	}
	s.sent = nil
}

// shown checks that a command succeeded and printed valid JSON or text.
func (s *stored) shown(err error) {
	s.Helper()
	s.must(err)
	var value any
	if s.cli.json {
		if err := json.Unmarshal(s.out.Bytes(), &value); err != nil {
			s.Fatalf("%v: %.300s", err, s.out.Bytes())
		}
	} else if text := s.out.String(); !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\x00") {
		s.Fatalf("not for terminals: %.3000q", text)
	}
	s.out.Reset()
}

func (s *stored) fetch(path string) []byte {
	s.Helper()
	answer, err := http.Get(s.server.URL + path)
	s.must(err)
	defer answer.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(answer.Body)
	s.must(err)
	if answer.StatusCode != http.StatusOK {
		s.Fatalf("GET %s: %s: %.500s", path, answer.Status, body.Bytes())
	}
	return body.Bytes()
}

// get reads JSON with a strict decoder, numbers as doubles.
func (s *stored) get(path string) {
	s.Helper()
	var value any
	if body := s.fetch(path); json.Unmarshal(body, &value) != nil {
		s.Fatalf("GET %s answers with what cannot be read: %.500s", path, body)
	}
}

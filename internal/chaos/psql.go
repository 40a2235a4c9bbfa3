//go:build unix

package chaos

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// psql is a session of the program psql, which ends with its connection.
type psql struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

// patience is how long a statement may take before the session is given up.
const patience = 5 * time.Second

func openPsql(url string) (*psql, error) {
	cmd := exec.Command("psql", "--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--field-separator=\t", url)
	cmd.Stderr = io.Discard // every error is read as its SQLSTATE
	cmd.Env = append(os.Environ(), "PGCONNECT_TIMEOUT=3")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &psql{cmd, in, make(chan string, 1000)}
	go func() {
		defer close(s.lines)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			s.lines <- strings.TrimSuffix(line, "\n")
		}
	}()
	return s, nil
}

func (s *psql) close() {
	_ = s.in.Close()
	_ = s.cmd.Process.Kill()
	go func() {
		for range s.lines {
		}
	}()
	_ = s.cmd.Wait()
}

// errNoAnswer says that the result of a statement is unknown.
var errNoAnswer = errors.New("psql ended, or does not answer")

// refusal is a SQLSTATE.
type refusal string

func (r refusal) Error() string { return "SQLSTATE " + string(r) }

// ask runs a statement and returns its rows. The error is a refusal, or errNoAnswer, after
// which the session is unusable.
func (s *psql) ask(statement string) (rows []string, err error) {
	const end = "=end "
	if _, err := io.WriteString(s.in, statement+";\n\\echo "+end+":SQLSTATE\n"); err != nil {
		return nil, errNoAnswer
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-s.lines:
			state, ended := strings.CutPrefix(line, end)
			switch {
			case !ok:
				return nil, errNoAnswer
			case !ended:
				rows = append(rows, line)
			case state != "00000":
				return nil, refusal(state)
			default:
				return rows, nil
			}
		case <-timer.C:
			return nil, errNoAnswer
		}
	}
}

// sessions provides a psql session, and a new one when that has ended.
type sessions struct {
	url string
	now *psql
}

func (s *sessions) get() (*psql, error) {
	if s.now == nil {
		var err error
		s.now, err = openPsql(s.url)
		return s.now, err
	}
	return s.now, nil
}

// ask runs a statement, and ends the session if there is no answer.
func (s *sessions) ask(statement string) ([]string, error) {
	now, err := s.get()
	if err != nil {
		return nil, err
	}
	rows, err := now.ask(statement)
	if errors.Is(err, errNoAnswer) {
		s.end()
	}
	return rows, err
}

func (s *sessions) end() {
	if s.now != nil {
		s.now.close()
		s.now = nil
	}
}

// quoted returns a SQL literal.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// sqlSender sends with psql only: with send_many, and with send in transactions.
func sqlSender(ctx context.Context, t task, r *history.Recorder) error {
	db := &sessions{url: t.URL}
	defer db.end()
	p := newPlanner(t, r, 0)
	for ctx.Err() == nil {
		d := p.next(10)
		switch {
		case d.rollBack || p.random.IntN(2) == 0:
			p.answered(ctx, d, db.transaction(d))
		default:
			p.answered(ctx, d, db.many(d))
		}
	}
	return nil
}

// many sends with one statement.
func (s *sessions) many(d plan) history.Event {
	type message struct {
		Payload json.RawMessage `json:"payload"`
		Key     string          `json:"key,omitempty"`
		Dedupe  string          `json:"dedupe_key,omitempty"`
	}
	messages := make([]message, len(d.payloads))
	for i, payload := range d.payloads {
		messages[i] = message{payload, d.key, d.dedupe}
	}
	raw, err := json.Marshal(messages)
	if err != nil {
		panic(err) // they were JSON
	}
	rows, err := s.ask(fmt.Sprintf("select posthaste.send_many(%s, %s)", quoted(d.queue), quoted(string(raw))))
	return committed(rows, err)
}

// transaction sends one message after the other in a transaction.
func (s *sessions) transaction(d plan) history.Event {
	refused := func(err error) history.Event {
		// Whatever the statement's result, it is not committed.
		_, _ = s.ask("rollback")
		return history.Event{Kind: Refused, Note: err.Error()}
	}
	if _, err := s.ask("begin"); err != nil {
		return refused(err)
	}
	session := s.now
	options := "{}"
	if d.key != "" {
		options = fmt.Sprintf(`{"key": %q}`, d.key)
	}
	if d.dedupe != "" {
		options = fmt.Sprintf(`{"dedupe_key": %q}`, d.dedupe)
	}
	var ids []string
	for _, payload := range d.payloads {
		rows, err := s.ask(fmt.Sprintf("select posthaste.send(%s, %s, %s)", quoted(d.queue), quoted(string(payload)), quoted(options)))
		if err != nil {
			return refused(err)
		}
		ids = append(ids, rows...)
	}
	if d.rollBack {
		if _, err := s.ask("rollback"); err != nil && s.now == session {
			s.end()
		}
		return history.Event{Kind: RolledBack}
	}
	_, err := s.ask("commit")
	return committed(ids, err)
}

// committed returns the event for the answer of a statement or commit.
func committed(ids []string, err error) history.Event {
	var state refusal
	switch {
	case errors.As(err, &state) && !endsSession(string(state)):
		return history.Event{Kind: Refused, Note: err.Error()}
	case err != nil:
		return history.Event{Kind: Unsure, Note: err.Error()}
	}
	e := history.Event{Kind: history.Sent}
	for _, text := range ids {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("psql answered %q for an id", text))
		}
		e.IDs = append(e.IDs, posthaste.MessageID(id))
	}
	return e
}

// sqlReceiver receives and acknowledges with psql only.
func sqlReceiver(ctx context.Context, t task, r *history.Recorder) error {
	db := &sessions{url: t.URL}
	defer db.end()
	refs := byLease(t.Queues)
	for turn := 0; ctx.Err() == nil; turn++ {
		ref, received := refs[turn%len(refs)], time.Now()
		rows, err := db.ask(fmt.Sprintf("select delivery_id, message_id, attempt, payload_json from posthaste.receive(%s, %d, '%d ms', %s)",
			quoted(ref.queue), ref.most, t.Lease.Milliseconds(), quoted(fmt.Sprintf(`{"subscription": %q}`, cmp.Or(ref.subscription, posthaste.DefaultSubscription)))))
		if err != nil || len(rows) == 0 {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		for _, row := range rows {
			if t.over(received) {
				break
			}
			f := strings.SplitN(row, "\t", 4)
			id, err1 := strconv.ParseInt(f[1], 10, 64)
			attempt, err2 := strconv.Atoi(f[2])
			if err := errors.Join(err1, err2); err != nil {
				return fmt.Errorf("psql answered %q: %w", row, err)
			}
			s, whole := arrived(r, history.Event{ID: posthaste.MessageID(id), Attempt: attempt, Subscription: ref.subscription}, []byte(f[3]))
			if !whole {
				continue
			}
			time.Sleep(work(s.content, false))
			s.left(r, nil)
			// Repeat until there is an answer: a second acknowledgment changes nothing.
			for try := 0; try < 100; try++ {
				if _, err := db.ask(fmt.Sprintf("select settled from posthaste.ack(array[%s])", f[0])); err == nil {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
	}
	return nil
}

package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// keyed is a session on a database whose queue q has options.
func keyed(t *testing.T, url, options string) *session {
	t.Helper()
	s := connect(t, url)
	s.exec(`select posthaste.create_queue('q', $1)`, options)
	return s
}

func (s *session) sendKey(key string) int64 {
	s.t.Helper()
	return get[int64](s, `select posthaste.send('q', '1', jsonb_build_object('key', $1::text))`, key)
}

type got struct{ delivery, message int64 }

func (s *session) take(most int) (out []got) {
	s.t.Helper()
	ids := list[int64](s, `select unnest(array[delivery_id, message_id]) from posthaste.receive('q', $1, '1 hour')`, most)
	for i := 0; i < len(ids); i += 2 {
		out = append(out, got{ids[i], ids[i+1]})
	}
	return out
}

func messages(g []got) (out []int64) {
	for _, x := range g {
		out = append(out, x.message)
	}
	return out
}

func (s *session) ack(g ...got) {
	s.t.Helper()
	for _, x := range g {
		s.exec(`select from posthaste.ack(array[$1::bigint], '{"strict": true}')`, x.delivery)
	}
}

func TestOrderedReceivers(t *testing.T) {
	t.Parallel()
	s := keyed(t, testpg.New(t), `{"ordered": true, "lanes": 1}`)
	a1, a2, b1, a3, b2 := s.sendKey("a"), s.sendKey("a"), s.sendKey("b"), s.sendKey("a"), s.sendKey("b")
	first := s.take(10)
	if want := []int64{a1, b1}; !slices.Equal(messages(first), want) {
		t.Fatalf("received %v, want %v", messages(first), want)
	}
	if more := s.take(10); len(more) != 0 {
		t.Fatalf("received %v beside", messages(more))
	}
	s.ack(first[0])
	second := s.take(10)
	if want := []int64{a2}; !slices.Equal(messages(second), want) {
		t.Fatalf("received %v, want %v", messages(second), want)
	}
	s.exec(`select from posthaste.fail($1, 'no', '{"retry_after": "0"}')`, first[1].delivery)
	third := s.take(10)
	if want := []int64{b1}; !slices.Equal(messages(third), want) {
		t.Fatalf("received %v, want %v again", messages(third), want)
	}
	s.ack(third[0])
	s.ack(second[0])
	var rest []int64
	for {
		g := s.take(10)
		if len(g) == 0 {
			break
		}
		rest = append(rest, messages(g)...)
		s.ack(g...)
	}
	slices.Sort(rest)
	if want := []int64{a3, b2}; !slices.Equal(rest, want) {
		t.Fatalf("received %v, want %v", rest, want)
	}
	if n := get[int](s, `select count(*)::int from posthaste.parked`); n != 0 {
		t.Fatal(fmt.Sprint(n, " stay parked"))
	}
	if n := get[int](s, `select count(*)::int from posthaste.keys`); n != 0 {
		t.Fatal(fmt.Sprint(n, " keys stay"))
	}
}

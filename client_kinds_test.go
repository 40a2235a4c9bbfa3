package posthaste

import (
	"context"
	"testing"
	"testing/synctest"
)

type notice struct{ Text string }

func (notice) Kind() string          { return "notice" }
func (notice) SendDefaults() Message { return Message{Queue: "q", MaxAttempts: 3} }

// letter has its methods by its pointer.
type letter struct{ Text string }

func (*letter) Kind() string          { return "letter" }
func (*letter) SendDefaults() Message { return Message{Queue: "post"} }

// half has one method of each sort.
type half struct{ letter }

func (half) Kind() string { return "half" }

// The kind and the defaults are the same whether a value or its pointer is sent.
func TestKindOfPointers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		payload     any
		kind, queue string
	}{
		{letter{"a"}, "letter", "post"}, {&letter{"a"}, "letter", "post"}, {half{}, "half", "post"}, {&half{}, "half", "post"},
		{notice{}, "notice", "q"}, {&notice{}, "notice", "q"}, {struct{ A int }{1}, "", ""}, {nil, "", ""}, {7, "", ""}, {[]byte("x"), "", ""},
	} {
		for range 2 { // the second time the type is known
			given := []Message{{Payload: c.payload}}
			got := Completed(given)[0]
			if got.Kind != c.kind || got.Queue != c.queue {
				t.Errorf("%T became a message of kind %q for queue %q", c.payload, got.Kind, got.Queue)
			}
			if given[0].Kind != "" {
				t.Errorf("%T: the caller's message was changed", c.payload)
			}
		}
	}
}

// A client uses the kind and the defaults of a payload's type, whether it sends the message at
// once or encodes it to gather it with others. It does not change the caller's message.
func TestClientKeepsDefaultsOfPayloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSendEngine()
		e.hold = make(chan struct{}, 10)
		e.answer = func(_ context.Context, messages []Message) error {
			for _, m := range messages {
				if m.Key != "first" && (m.Queue != "q" || m.Kind != "notice" || m.MaxAttempts != 3) {
					t.Errorf("sent was %+v", m)
				}
			}
			return nil
		}
		given := []Message{{Key: "a", Payload: notice{"a"}}, {Key: "b", Payload: notice{"b"}}}
		c := NewClient(e)
		answers := gathering(t, c, e, nil, given...)
		for range 2 {
			e.hold <- struct{}{}
		}
		for range 3 {
			if got := <-answers; got.err != nil {
				t.Errorf("sending %s: %v", got.key, got.err)
			}
		}
		e.hold <- struct{}{}
		if _, err := c.Send(t.Context(), given...); err != nil {
			t.Error(err)
		}
		if given[0].Queue != "" || given[0].Kind != "" {
			t.Errorf("the caller's message became %+v", given[0])
		}
	})
}

package nats

import (
	"fmt"
	"net/url"
	"strings"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/source"
)

// arrival returns the message to send. Its kind is the subject, unless a relay published
// it with another kind.
func (s *session) arrival(m *natsgo.Msg) source.Arrival {
	in := relay.Incoming{Payload: m.Data, Kind: m.Subject, Headers: make(map[string]string, len(m.Header))}
	event := m.Header.Get(eventPrefix+"specversion") != ""
	for name, values := range m.Header {
		value := strings.Join(values, ", ")
		switch {
		case name == natsgo.MsgIdHdr:
			in.MessageID = value
		case strings.HasPrefix(name, commandPrefix):
		case strings.EqualFold(name, HeaderContentType):
			in.ContentType = value
		default:
			if name == relay.HeaderQueue {
				in.Kind = ""
			}
			if event && strings.HasPrefix(name, eventPrefix) {
				// Keep values that are not percent-encoded.
				if plain, err := url.PathUnescape(value); err == nil {
					value = plain
				}
			}
			in.Headers[name] = value
		}
	}
	if meta, err := m.Metadata(); err == nil && in.MessageID == "" {
		in.MessageID = fmt.Sprintf("nats/%s/%d/%d", meta.Stream, s.created, meta.Sequence.Stream)
	}
	out, err := in.Message(eventPrefix)
	return source.Arrival{Message: out, Err: err, Token: m}
}

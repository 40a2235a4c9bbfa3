package rabbitmq

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/source"
)

// arrival returns the message to send for a delivery. Its kind is its type or, if it was
// published to an exchange without one, its routing key.
func arrival(d amqp.Delivery) source.Arrival {
	in := relay.Incoming{MessageID: d.MessageId, ContentType: d.ContentType, Kind: d.Type, Payload: d.Body, Headers: make(map[string]string, len(d.Headers)+4)}
	if _, relayed := d.Headers[relay.HeaderQueue]; d.Exchange != "" && !relayed {
		in.Kind = cmp.Or(in.Kind, d.RoutingKey)
	}
	for _, h := range [...]relay.Header{{Name: "content-encoding", Value: d.ContentEncoding}, {Name: "correlation-id", Value: d.CorrelationId}, {Name: "reply-to", Value: d.ReplyTo}, {Name: "app-id", Value: d.AppId}} {
		if h.Value != "" {
			in.Headers[h.Name] = h.Value
		}
	}
	for name, value := range d.Headers {
		in.Headers[name] = text(value)
	}
	m, err := in.Message(eventPrefix)
	return source.Arrival{Message: m, Err: err, Token: d}
}

// text returns a header's value as text: times in RFC 3339, bytes that are not UTF-8 in
// base64, lists and tables as JSON.
func text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		if utf8.Valid(v) {
			return string(v)
		}
		return base64.StdEncoding.EncodeToString(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case amqp.Table, []any:
		if encoded, err := json.Marshal(v); err == nil {
			return string(encoded)
		}
	}
	return fmt.Sprint(value)
}

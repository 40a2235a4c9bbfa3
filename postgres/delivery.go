package postgres

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// The columns of a delivery. Statements select them first, in this order: the delivery's id,
// then deliveryColumns.
const (
	deliveryID = iota
	deliveryMessageID
	deliveryAttempt
	deliveryKey
	deliveryKind
	deliveryHeaders
	deliveryPayload
	deliveryContentType
	deliveryReference
	deliveryCreatedAt
	deliveryDueAt
	deliveryStory
	deliveryAlone
	deliveryTraceParent

	deliveryWidth // the number of the columns above
)

// deliveryColumns are the columns of a delivery after its id.
const deliveryColumns = "message_id, attempt, key, kind, headers, payload, content_type, reference, created_at, due_at, story, alone, trace"

// shared are texts that many rows of one answer have, so that each is allocated once.
type shared struct {
	trace string            // of the row before: messages that were sent together have the same
	kinds map[string]string // of all rows before
}

// kind returns the kind of a row.
func (s *shared) kind(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	kind, known := s.kinds[string(raw)]
	if !known {
		if s.kinds == nil {
			s.kinds = map[string]string{}
		}
		kind = string(raw)
		s.kinds[kind] = kind
	}
	return kind
}

// readDelivery reads a delivery from a row. It copies the values.
func readDelivery(v [][]byte, texts *shared) (posthaste.RawDelivery, error) {
	payload := v[deliveryPayload]
	d := posthaste.RawDelivery{
		ID:          posthaste.DeliveryID(readInt8(v[deliveryID])),
		MessageID:   posthaste.MessageID(readInt8(v[deliveryMessageID])),
		Attempt:     readInt2(v[deliveryAttempt]),
		Key:         string(v[deliveryKey]),
		Kind:        texts.kind(v[deliveryKind]),
		Payload:     append(make([]byte, 0, len(payload)), payload...),
		ContentType: posthaste.ContentTypeJSON,
		Reference:   string(v[deliveryReference]),
		CreatedAt:   readTime(v[deliveryCreatedAt]),
		DueAt:       readTime(v[deliveryDueAt]),
		Alone:       readBool(v[deliveryAlone]),
	}
	if v[deliveryContentType] != nil {
		d.ContentType = contentType(v[deliveryContentType])
	}
	var err error // d is not passed on by address, which would allocate it on the heap
	if v[deliveryHeaders] != nil {
		if d.Headers, d.Timeout, err = readHeaders(readJSON(v[deliveryHeaders])); err != nil {
			return d, fmt.Errorf("reading the headers of message %d: %w", d.MessageID, err)
		}
	}
	if parent := v[deliveryTraceParent]; parent != nil {
		if d.Headers == nil {
			d.Headers = make(map[string]string, 1)
		}
		if string(parent) != texts.trace {
			texts.trace = string(parent)
		}
		d.Headers[posthaste.HeaderTraceParent] = texts.trace // the handler may change its map
	}
	if v[deliveryStory] != nil {
		if d.Story, err = readStory(readJSON(v[deliveryStory])); err != nil {
			return d, fmt.Errorf("reading the story of message %d: %w", d.MessageID, err)
		}
	}
	return d, nil
}

func readStory(raw []byte) (story []posthaste.Attempt, err error) {
	err = json.Unmarshal(raw, &story)
	return story, err
}

// readHeaders reads stored headers, and the timeout of the message's own options.
func readHeaders(raw []byte) (headers map[string]string, timeout time.Duration, err error) {
	if !bytes.Contains(raw, []byte(`"":`)) {
		err = json.Unmarshal(raw, &headers)
		return headers, 0, err
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil {
		return nil, 0, err
	}
	for name, value := range values {
		if name == attemptHeader {
			var options attemptOptions
			if err := json.Unmarshal(value, &options); err != nil {
				return nil, 0, err
			}
			timeout = seconds(options.Timeout)
			continue
		}
		var text string
		if err := json.Unmarshal(value, &text); err != nil {
			return nil, 0, err
		}
		if headers == nil {
			headers = map[string]string{}
		}
		headers[name] = text
	}
	return headers, timeout, nil
}

// contentType returns v as text. It does not allocate for the most common type.
func contentType(v []byte) string {
	if string(v) == posthaste.ContentTypeBytes {
		return posthaste.ContentTypeBytes
	}
	return string(v)
}

// readDue reads a number of seconds; null is -1, which means that nothing will fall due.
func readDue(v []byte) time.Duration {
	if v == nil {
		return -1
	}
	// 9e9 s, some 285 years, is nearly the longest Duration.
	return time.Duration(min(readFloat8(v), 9e9) * float64(time.Second))
}

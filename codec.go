package posthaste

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Codec encodes and decodes payloads of some content types. A sender sets [Message].Codec; a
// worker decodes with its Config.Codecs, by the content types of messages. JSON and raw bytes
// need no codec. Packages codec/msgpack and codec/protobuf have codecs. A Codec is safe for
// concurrent use.
type Codec interface {
	// ContentTypes lists the media types that Decode supports, at least one, in lower case
	// and without parameters. Payloads from Encode have the first one.
	ContentTypes() []string
	// Encode encodes a value as a payload.
	Encode(value any) ([]byte, error)
	// Decode decodes a payload into the value that into points to. Payloads are untrusted:
	// Decode must not panic, and must use memory in proportion to their size.
	Decode(payload []byte, into any) error
}

// mediaType is a content type without its parameters.
func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// IsJSON reports whether content of this type is JSON: application/json, anything that
// ends in +json, or no type at all.
func IsJSON(contentType string) bool { return isJSON(mediaType(contentType)) }

func isJSON(media string) bool {
	return media == "" || media == ContentTypeJSON || strings.HasSuffix(media, "+json")
}

// Body returns the payload as bytes, and its content type. A Payload that is neither []byte
// nor json.RawMessage is encoded: by Codec, or as JSON if the content type is JSON. With any
// other type a string is returned unchanged.
func (m *Message) Body() (body []byte, contentType string, err error) {
	def := ContentTypeJSON
	if m.Codec != nil {
		if def, err = m.codecType(); err != nil {
			return nil, "", err
		}
	}
	contentType = orDefault(m.ContentType, def)
	switch p := m.Payload.(type) {
	case []byte:
		if m.Codec == nil {
			contentType = orDefault(m.ContentType, ContentTypeBytes)
		}
		return p, contentType, nil
	case json.RawMessage:
		if m.Codec == nil {
			return p, contentType, nil
		}
	case nil:
		if m.Codec == nil && isJSON(mediaType(contentType)) {
			return []byte("null"), contentType, nil
		}
	}
	body, err = m.encode(contentType)
	return body, contentType, err
}

// codecType checks the content type against the codec and returns the codec's own.
func (m *Message) codecType() (string, error) {
	types := m.Codec.ContentTypes()
	if len(types) == 0 {
		return "", Invalidf("codec", "the codec %T has no content type", m.Codec)
	}
	if m.ContentType != "" && !slices.Contains(types, mediaType(m.ContentType)) {
		return "", Invalidf("content_type", "content type %q is not one of the codec's: %s", m.ContentType, strings.Join(types, ", "))
	}
	return types[0], nil
}

func (m *Message) encode(contentType string) (body []byte, err error) {
	what := "JSON"
	switch text, isText := m.Payload.(string); {
	case m.Codec != nil:
		what = contentType
		body, err = m.Codec.Encode(m.Payload)
	case isJSON(mediaType(contentType)):
		body, err = json.Marshal(m.Payload)
	case isText:
		return []byte(text), nil
	default:
		return nil, &Error{Code: CodeInvalid, Field: "content_type",
			Message: fmt.Sprintf("a payload of type %T cannot be encoded as %q without a codec", m.Payload, contentType),
			Hint:    "set the message's Codec, or give the payload as []byte"}
	}
	if err != nil {
		return nil, &Error{Code: CodeInvalid, Field: "payload", Message: fmt.Sprintf("payload cannot be encoded as %s: %s", what, err), Cause: err}
	}
	return body, nil
}

// Decode decodes the payload of d by its content type: with the first codec that supports
// it, or as JSON ("application/json", "…+json" or empty). Any content type can be decoded
// into *[]byte, *json.RawMessage and, if no codec supports it, *string.
func Decode(d RawDelivery, into any, codecs ...Codec) error {
	switch p := into.(type) {
	case *[]byte:
		*p = d.Payload
		return nil
	case *json.RawMessage:
		*p = d.Payload
		return nil
	}
	media := mediaType(d.ContentType)
	for _, c := range codecs {
		if slices.Contains(c.ContentTypes(), media) {
			return undecodable(media, into, c.Decode(d.Payload, into))
		}
	}
	if isJSON(media) {
		return undecodable("JSON", into, json.Unmarshal(d.Payload, into))
	}
	if p, ok := into.(*string); ok {
		*p = string(d.Payload)
		return nil
	}
	return &Error{Code: CodeUnsupported, Field: "content_type", Message: fmt.Sprintf("no codec for content type %q into %T", d.ContentType, into),
		Hint: "give the worker one by Config.Codecs, and replay the dead letters"}
}

func undecodable(as string, into any, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: CodeInvalid, Field: "payload", Message: fmt.Sprintf("payload cannot be decoded as %s into %T: %s", as, into, err), Cause: err}
}

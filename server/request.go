package server

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// readJSON reads the body. Its content type must be JSON, and its size within the limit of
// the route. If the body is optional, it may be empty, with any content type.
func readJSON(w http.ResponseWriter, r *http.Request, optional bool) ([]byte, error) {
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	isJSON := err == nil && (media == posthaste.ContentTypeJSON || strings.HasSuffix(media, "+json")) && (charset == "" || strings.EqualFold(charset, "utf-8"))
	if !isJSON && (!optional || r.ContentLength > 0) {
		return nil, unsupportedMedia("Content-Type", "the body must be JSON, got Content-Type "+strconv.Quote(r.Header.Get("Content-Type")), "send the header Content-Type: application/json")
	}
	body, err := readBody(w, r)
	switch {
	case err != nil:
		return nil, err
	case len(body) > 0 && !isJSON:
		return nil, unsupportedMedia("Content-Type", "the body must be JSON", "send the header Content-Type: application/json")
	case len(body) == 0 && !optional:
		return nil, posthaste.Invalidf("", "a JSON body is required")
	}
	return body, nil
}

// readObject reads a body that must be a JSON object.
func readObject(w http.ResponseWriter, r *http.Request) (*wire.Object, error) {
	body, err := readJSON(w, r, false)
	if err != nil {
		return nil, err
	}
	return wire.ParseObject("", body)
}

// readBody reads the body to its end, also if it is compressed with gzip. The limit of the route
// holds for both sizes: few bytes can decompress to very many.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	encoding := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding")))
	zipped := encoding == "gzip" || encoding == "x-gzip"
	if !zipped && encoding != "" && encoding != "identity" {
		w.Header().Set("Accept-Encoding", "gzip") // RFC 7694
		return nil, unsupportedMedia("Content-Encoding", "the content encoding "+strconv.Quote(encoding)+" is not supported", "use gzip, or send the body without compression")
	}
	limit := exchangeOf(r).route.bodyLimit()
	if r.ContentLength > limit {
		return nil, bodyTooLarge(limit)
	}
	var from io.Reader = http.MaxBytesReader(w, r.Body, limit)
	if zipped {
		unzipped, err := gzip.NewReader(from)
		if err != nil {
			return nil, unreadable(err, limit, zipped)
		}
		from = io.LimitReader(unzipped, limit+1)
	}
	body, err := io.ReadAll(from)
	if err != nil {
		return nil, unreadable(err, limit, zipped)
	}
	if int64(len(body)) > limit {
		return nil, bodyTooLarge(limit)
	}
	return body, nil
}

func unreadable(err error, limit int64, zipped bool) error {
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return bodyTooLarge(limit)
	case zipped:
		return posthaste.Invalidf("Content-Encoding", "the body is not complete, valid gzip data")
	}
	return posthaste.Invalidf("", "the body could not be read completely")
}

func unsupportedMedia(header, message, hint string) error {
	return &httpError{status: http.StatusUnsupportedMediaType, err: &posthaste.Error{Code: posthaste.CodeInvalid, Field: header, Message: message, Hint: hint}}
}

// withoutQuery is for operations without query parameters.
func withoutQuery(handle handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := readQuery(r).err; err != nil {
			return err
		}
		return handle(w, r)
	}
}

// withoutInput is for operations without query parameters and body.
func withoutInput(handle handler) handler {
	return withoutQuery(func(w http.ResponseWriter, r *http.Request) error {
		if err := refuseBody(r); err != nil {
			return err
		}
		return handle(w, r)
	})
}

// done is for operations without query parameters and body that respond with 204.
func (s *Server) done(do func(ctx context.Context, r *http.Request) error) handler {
	return withoutInput(func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := s.operation(r)
		defer cancel()
		if err := do(ctx, r); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
}

// refuseBody is for operations without a body. It reads to the end, which also lets
// net/http notice that the caller closes the connection.
func refuseBody(r *http.Request) error {
	var one [1]byte
	for {
		n, err := r.Body.Read(one[:])
		switch {
		case n > 0:
			return posthaste.Invalidf("", "this operation takes no body")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return posthaste.Invalidf("", "the request could not be read completely")
		}
	}
}

// query returns parameters one by one and keeps the first fault, as [wire.Object] does for
// fields.
type query struct {
	values url.Values
	err    error
}

// readQuery reads the parameters strictly. Only the known ones are allowed, and each of
// them once, except id. None may be empty: if an empty parameter counted as absent, a
// caller whose variable is empty would select everything.
func readQuery(r *http.Request, known ...string) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.err = posthaste.Invalidf("", "the query is not valid URL encoding")
		return q
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case !slices.Contains(known, name):
			allowed := "; expected one of " + strings.Join(known, ", ")
			if len(known) == 0 {
				allowed = "; this operation has no parameters"
			}
			q.fail(name, "is unknown"+allowed)
		case len(values[name]) > 1 && name != "id":
			q.fail(name, "is given twice")
		case slices.Contains(values[name], ""):
			q.fail(name, "must not be empty; leave it out instead")
		case slices.ContainsFunc(values[name], func(s string) bool { return !utf8.ValidString(s) || strings.Contains(s, "\x00") }):
			q.fail(name, "must be valid UTF-8 without NUL characters")
		}
	}
	return q
}

func (q *query) fail(name, what string) {
	if q.err == nil {
		q.err = posthaste.Invalidf(name, "parameter %s %s", strconv.Quote(name), what)
	}
}

func (q *query) text(name string) string { return q.values.Get(name) }

func (q *query) int(name string, def, min, max int) int {
	s := q.text(name)
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < min || n > max {
		q.fail(name, "must be an integer from "+strconv.Itoa(min)+" to "+strconv.Itoa(max)+", got "+strconv.Quote(s))
		return def
	}
	return n
}

func (q *query) messageID(name string) posthaste.MessageID {
	s := q.text(name)
	if s == "" {
		return 0
	}
	var id posthaste.MessageID
	if id.UnmarshalText([]byte(s)) != nil {
		q.fail(name, "must be a message id, which is a positive decimal number, got "+strconv.Quote(s))
	}
	return id
}

// time returns an RFC 3339 time.
func (q *query) time(name string) (t time.Time) {
	s := q.text(name)
	if s == "" {
		return t
	}
	t, err := wire.ParseTime(s)
	if err != nil {
		q.fail(name, err.Error())
	}
	return t
}

// checkPath rejects invalid names in the path. A 404 would suggest that a resource of that
// name could be created.
func checkPath(r *http.Request) error {
	for _, field := range [...]string{"queue", "subscription", "schedule"} {
		if strings.Contains(r.Pattern, "{"+field+"}") {
			if err := posthaste.CheckName(field, r.PathValue(field)); err != nil {
				return err
			}
		}
	}
	if strings.Contains(r.Pattern, "{id}") {
		_, err := pathMessageID(r)
		return err
	}
	return nil
}

// pathMessageID returns {id} of the path.
func pathMessageID(r *http.Request) (posthaste.MessageID, error) {
	var id posthaste.MessageID
	if err := id.UnmarshalText([]byte(r.PathValue("id"))); err != nil {
		return 0, posthaste.Invalidf("id", "the id in the path must be a positive decimal number, got %q", r.PathValue("id"))
	}
	return id, nil
}

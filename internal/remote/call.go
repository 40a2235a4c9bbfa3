package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// callTimeout limits one call, besides the time that it waits for messages. It is above the time
// limits of the server, which says more about what took so long.
const callTimeout = 2 * time.Minute

// maxThrottled is the longest time for which a call waits because the server limits the rate.
const maxThrottled = 30 * time.Second

// leastWait is the shortest wait for a server that limits the rate.
const leastWait = 100 * time.Millisecond

// call is one request.
type call struct {
	method, path string
	query        url.Values
	body         []byte // JSON, or nil
	header       http.Header
	wait         time.Duration // of the server, for messages
}

// reply is the response to a call that succeeded.
type reply struct {
	header http.Header
	body   []byte
}

// path returns a path of the API with names and ids in place of each {}.
func path(pattern string, names ...string) string {
	for _, name := range names {
		pattern = strings.Replace(pattern, "{}", url.PathEscape(name), 1)
	}
	return pattern
}

// get reads a resource into value, unless that is nil.
func (s *Store) get(ctx context.Context, path string, query url.Values, value any) error {
	r, err := s.do(ctx, call{method: http.MethodGet, path: path, query: query})
	return s.decode(r, err, value)
}

// send makes a call with a body that is encoded, unless it is nil, and reads its response into
// value, unless that is nil.
func (s *Store) send(ctx context.Context, method, path string, body, value any) error {
	c := call{method: method, path: path}
	if body != nil {
		var err error
		if c.body, err = wire.Encode(body); err != nil {
			return posthaste.Invalidf("", "the request cannot be encoded: %s", err)
		}
	}
	r, err := s.do(ctx, c)
	return s.decode(r, err, value)
}

// decode reads the response to a call into value.
func (s *Store) decode(r reply, err error, value any) error {
	if err != nil || value == nil {
		return err
	}
	if err := json.Unmarshal(r.body, value); err != nil {
		return s.unreadable(err)
	}
	return nil
}

// unreadable is the error for a response that this version does not understand.
func (s *Store) unreadable(cause error) error {
	return &posthaste.Error{Code: posthaste.CodeUnsupported, Message: "the response of " + s.base.Host + " cannot be read: " + printable(cause.Error()),
		Hint: "use the version of the server; posthaste version shows that of this program", Cause: cause}
}

// do makes a call. It waits and repeats it while the server limits the rate.
func (s *Store) do(ctx context.Context, c call) (reply, error) {
	for waited := time.Duration(0); ; {
		r, err := s.once(ctx, c)
		var busy *tooMany
		if !errors.As(err, &busy) {
			return r, err
		}
		if waited += busy.wait; waited > maxThrottled {
			return r, busy.error
		}
		select {
		case <-time.After(busy.wait):
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
}

// tooMany is the error of a call that the server has rejected because of a rate limit.
type tooMany struct {
	error
	wait time.Duration
}

func (s *Store) once(ctx context.Context, c call) (reply, error) {
	limited, cancel := context.WithTimeout(ctx, callTimeout+c.wait)
	defer cancel()
	begun := false // the server may have the request
	limited = httptrace.WithClientTrace(limited, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { begun = true }})
	target := *s.base
	target.Path, target.RawPath = "", ""
	request, err := http.NewRequestWithContext(limited, c.method, target.String()+s.base.EscapedPath()+c.path, bytes.NewReader(c.body))
	if err != nil {
		return reply{}, err
	}
	request.URL.RawQuery = c.query.Encode()
	for name, values := range c.header {
		request.Header[name] = values
	}
	if len(c.body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	request.Header.Set("User-Agent", s.program)
	response, err := s.client.Do(request)
	if err != nil {
		return reply{}, s.lost(ctx, c, begun, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return reply{}, s.lost(ctx, c, true, err)
	case response.StatusCode < 300:
		return reply{response.Header, body}, nil
	}
	return reply{}, s.failure(c, response, body)
}

// lost returns the error of a call without a response. begun says that the server may have the
// request.
func (s *Store) lost(ctx context.Context, c call, begun bool, cause error) error {
	if wrapped, ok := errors.AsType[*url.Error](cause); ok {
		cause = wrapped.Err // without the URL, whose parameters can be confidential
	}
	if ctx.Err() != nil && (!begun || c.method == http.MethodGet) {
		return ctx.Err()
	}
	what := printable(cause.Error())
	if errors.Is(cause, context.DeadlineExceeded) {
		what = "it did not answer in time"
	}
	if begun && c.method != http.MethodGet {
		return &posthaste.Error{Code: posthaste.CodeOutcomeUnknown, Message: "the response of the server " + s.address() + " was lost, so the operation may or may not have happened: " + what,
			Hint: "check what happened before you repeat it", Cause: cause}
	}
	return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "the server " + s.address() + " cannot be reached: " + what,
		Hint: "check that it is running, and --server-url or the context", Cause: cause}
}

func (s *Store) address() string { return s.base.Scheme + "://" + s.base.Host }

// failure returns the error of a response that is no success.
func (s *Store) failure(c call, response *http.Response, body []byte) error {
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	var p wire.Problem
	if media != "application/problem+json" || json.Unmarshal(body, &p) != nil || p.Code == "" {
		return s.foreign(c, response)
	}
	told := &problem{Problem: p, error: &posthaste.Error{Code: p.Code, Field: p.Field, Message: printable(p.Detail), Hint: printable(p.Hint)}}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && response.StatusCode == http.StatusTooManyRequests {
		return &tooMany{told, max(leastWait, time.Duration(seconds)*time.Second)}
	}
	return told
}

// problem is the error of a call that a server has answered with a problem.
type problem struct {
	wire.Problem
	error *posthaste.Error
}

func (p *problem) Error() string { return p.error.Error() }
func (p *problem) Unwrap() error { return p.error }

// foreign returns the error of a response that is not one of a Posthaste server.
func (s *Store) foreign(c call, response *http.Response) error {
	status := fmt.Sprintf("%d %s", response.StatusCode, http.StatusText(response.StatusCode))
	switch code := response.StatusCode; {
	case code == http.StatusRequestEntityTooLarge:
		return &posthaste.Error{Code: posthaste.CodeTooLarge, Message: "a proxy before the server " + s.address() + " answered " + status, Hint: "send fewer or smaller messages in one request, or raise the limit of the proxy"}
	case code >= 500 && c.method != http.MethodGet: // a proxy may have lost the response
		return &posthaste.Error{Code: posthaste.CodeOutcomeUnknown, Message: "a proxy before the server " + s.address() + " answered " + status + ", so the operation may or may not have happened",
			Hint: "check what happened before you repeat it"}
	case code >= 500:
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "a proxy before the server " + s.address() + " answered " + status, Hint: "check that the server is running"}
	case code < 400:
		status += ", a redirect to " + printable(response.Header.Get("Location"))
	}
	return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "server-url", Message: s.address() + " answered " + status + "; it is not the API of a Posthaste server",
		Hint: "check --server-url or the context"}
}

// checkTexts returns an error unless texts, by their fields, are valid UTF-8. JSON would replace
// other bytes, and the call would be about another text.
func checkTexts(texts map[string]string) error {
	for field, text := range texts {
		if !utf8.ValidString(text) {
			return posthaste.Invalidf(field, "%s must be valid UTF-8", field)
		}
	}
	return nil
}

// printable returns text without control characters, which a terminal would interpret.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// list reads all pages of a list.
func list[Shown, T any](ctx context.Context, s *Store, path string, stored func(Shown) (T, error)) ([]T, error) {
	var all []T
	for cursor := ""; ; {
		query := url.Values{"limit": {strconv.Itoa(maxListed)}}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		var page wire.Listed[Shown]
		if err := s.get(ctx, path, query, &page); err != nil {
			return nil, err
		}
		some, err := convert(s, page.Data, stored)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if cursor = page.Next; cursor == "" {
			return all, nil
		}
	}
}

// maxListed is the largest page of the API.
const maxListed = 1000

// convert converts the JSON of the API to what an engine returns.
func convert[Shown, T any](s *Store, shown []Shown, stored func(Shown) (T, error)) ([]T, error) {
	var all []T
	for _, one := range shown {
		item, err := stored(one)
		if err != nil {
			return nil, s.unreadable(err)
		}
		all = append(all, item)
	}
	return all, nil
}

// page reads the page of a list that begins before an id.
func page[Shown, T any](ctx context.Context, s *Store, path, name string, query url.Values, before posthaste.MessageID, limit int, stored func(Shown) (T, error)) (posthaste.Page[T], error) {
	for field, values := range query {
		if values[0] == "" {
			delete(query, field)
		}
	}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	if before != 0 {
		query.Set("cursor", wire.NewIDCursor(name, before))
	}
	var shown wire.Listed[Shown]
	if err := s.get(ctx, path, query, &shown); err != nil {
		return posthaste.Page[T]{}, err
	}
	items, err := convert(s, shown.Data, stored)
	if err != nil {
		return posthaste.Page[T]{}, err
	}
	next, err := s.nextOf(name, shown.Next)
	return posthaste.Page[T]{Items: items, Next: next}, err
}

// nextOf returns where the page after a cursor begins; 0 for "".
func (s *Store) nextOf(name, cursor string) (posthaste.MessageID, error) {
	if cursor == "" {
		return 0, nil
	}
	next, ok := wire.ReadIDCursor(name, cursor)
	if !ok {
		return 0, s.unreadable(errors.New("the cursor of the next page has another form"))
	}
	return next, nil
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

// steps sets the parameters of a query about the past.
func steps(query url.Values, from, to time.Time, step time.Duration) url.Values {
	for name, t := range map[string]time.Time{"from": from, "to": to} {
		if !t.IsZero() {
			query.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	if step != 0 {
		query.Set("step", step.String())
	}
	return query
}

// charted reads figures about the past.
func charted[Shown, T any](ctx context.Context, s *Store, path string, query url.Values, stored func(Shown) (T, error)) ([]T, error) {
	maps.DeleteFunc(query, func(_ string, values []string) bool { return values[0] == "" })
	var shown wire.Charted[Shown]
	if err := s.get(ctx, path, query, &shown); err != nil {
		return nil, err
	}
	all := make([]T, len(shown.Data))
	for i, x := range shown.Data {
		var err error
		if all[i], err = stored(x); err != nil {
			return nil, err
		}
	}
	return all, nil
}

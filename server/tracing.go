package server

import (
	"net/http"
	"regexp"

	"github.com/posthaste-mq/posthaste"
)

// traceParent is the format of the header: W3C Trace Context, version 00 or a later version,
// which may have more fields at the end.
var traceParent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?$`)

// maxTraceState is the longest tracestate that is stored with a message. The standard asks
// to propagate at least this much.
const maxTraceState = 512

// traceOf returns the request's trace context as headers of a message. It returns nil if the
// request has none, or an invalid one, which the standard requires to be ignored.
func traceOf(r *http.Request) map[string]string {
	parents := r.Header.Values(posthaste.HeaderTraceParent)
	if len(parents) != 1 || len(parents[0]) > posthaste.MaxWordBytes || !traceParent.MatchString(parents[0]) {
		return nil
	}
	headers := map[string]string{posthaste.HeaderTraceParent: parents[0]}
	if states := r.Header.Values(posthaste.HeaderTraceState); len(states) == 1 && states[0] != "" && len(states[0]) <= maxTraceState {
		headers[posthaste.HeaderTraceState] = states[0]
	}
	return headers
}

// continueTrace adds the request's trace context to the messages that have none. It changes
// the messages.
func continueTrace(r *http.Request, messages []posthaste.Message) {
	found := traceOf(r)
	if found == nil {
		return
	}
	for i := range messages {
		m := &messages[i]
		if _, own := m.Headers[posthaste.HeaderTraceParent]; own || headerBytes(m.Headers)+headerBytes(found) > posthaste.MaxHeaderBytes {
			continue
		}
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		for name, value := range found {
			m.Headers[name] = value
		}
	}
}

func headerBytes(headers map[string]string) (n int) {
	for name, value := range headers {
		n += len(name) + len(value)
	}
	return n
}

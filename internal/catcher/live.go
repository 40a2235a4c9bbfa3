package catcher

import (
	"fmt"
	"net/http"
	"time"
)

const (
	// lookAtMost is the shortest time between two events of a stream.
	lookAtMost = 500 * time.Millisecond
	// streamTime is how long a stream lasts. The browser then opens another one, for which the
	// caller of the handler checks the token again.
	streamTime = 30 * time.Second
)

// serveEvents tells a page to load the list again when it has changed, as server-sent events.
func (c *Catcher) serveEvents(w http.ResponseWriter, r *http.Request) {
	setHeaders(w, "text/event-stream", policyFile)
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold events back
	controller := http.NewResponseController(w)
	stopping := placeOf(r).Stopping
	end := time.NewTimer(streamTime)
	defer end.Stop()
	_, changed := c.kept()
	// The page may be older than this stream, and so is looked at once in any case.
	for {
		if _, err := fmt.Fprint(w, "retry: 2000\nevent: look\ndata: \n\n"); err != nil || controller.Flush() != nil {
			return // the viewer is gone
		}
		pause := time.NewTimer(lookAtMost)
		for due, news := pause.C, (<-chan struct{})(nil); due != nil || news != nil; {
			select {
			case <-due:
				due, news = nil, changed
			case <-news:
				_, changed = c.kept()
				news = nil
			case <-end.C:
				return
			case <-stopping:
				return
			case <-r.Context().Done():
				return
			}
		}
	}
}

package dashboard

import (
	"fmt"
	"net/http"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	// lookEvery is how often pages look for news. They all get the same snapshot.
	lookEvery = 2 * time.Second
	// streamTime is how long a stream lasts. The browser then opens another one, for which the
	// server checks the token again.
	streamTime = 30 * time.Second
	// maxStreams limits the streams at the same time.
	maxStreams = 500
)

// streamEvents tells a page from time to time to look for news, as server-sent events.
func (d *dashboard) streamEvents(p *page) error {
	if d.streams.Add(1) > maxStreams {
		d.streams.Add(-1)
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: fmt.Sprintf("%d pages already follow this server, which is its limit.", maxStreams)}
	}
	defer d.streams.Add(-1)
	h := p.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	controller := http.NewResponseController(p.w)
	ticker, end := time.NewTicker(lookEvery), time.NewTimer(streamTime)
	defer ticker.Stop()
	defer end.Stop()
	text := "retry: 2000\n\n"
	for {
		if _, err := fmt.Fprint(p.w, text); err != nil || controller.Flush() != nil {
			return nil // the viewer is gone
		}
		select {
		case <-ticker.C:
			text = "event: look\ndata: \n\n"
		case <-end.C:
			return nil
		case <-p.Stopping:
			return nil
		case <-p.r.Context().Done():
			return nil
		}
	}
}

package remote

import (
	"context"
	"maps"
	"net/http"
	"net/url"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Pause implements [posthaste.QueueAdmin].
func (s *Store) Pause(ctx context.Context, what posthaste.Pausable, o posthaste.PauseOptions) error {
	return s.pause(ctx, what, "pause", wire.PauseBody(o))
}

// Resume implements [posthaste.QueueAdmin].
func (s *Store) Resume(ctx context.Context, what posthaste.Pausable) error {
	return s.pause(ctx, what, "resume", nil)
}

func (s *Store) pause(ctx context.Context, what posthaste.Pausable, verb string, options map[string]string) error {
	body := map[string]string{}
	of, queue, name := posthaste.PausableNames(what)
	if of == "key" || of == "kind" {
		body[of] = name
	}
	maps.Copy(body, options)
	if err := checkTexts(body); err != nil {
		return err
	}
	var sent any
	if len(body) > 0 {
		sent = body
	}
	switch of {
	case "queue":
		return s.onQueue(ctx, http.MethodPost, "/v1/queues/{}/"+verb, queue, sent, nil)
	case "key", "kind":
		return s.onQueue(ctx, http.MethodPost, "/v1/queues/{}/"+of+"s/"+verb, queue, sent, nil)
	case "schedule":
		return s.onSchedule(ctx, http.MethodPost, "/v1/schedules/{}/"+verb, name, sent)
	}
	return posthaste.Invalidf("", "%T cannot be paused", what)
}

// Pauses implements [posthaste.QueueAdmin].
func (s *Store) Pauses(ctx context.Context, f posthaste.PauseFilter) ([]posthaste.Pause, error) {
	at := "/v1/pauses"
	if f.Queue != "" {
		if posthaste.CheckName("queue", f.Queue) != nil {
			return nil, missing("queue", f.Queue)
		}
		at = path("/v1/queues/{}/pauses", f.Queue)
	}
	found, err := page(ctx, s, at, wire.ListPauses, url.Values{}, posthaste.MessageID(f.Before), f.Limit, wire.Pause.Stored)
	return found.Items, err
}

package server

import (
	"context"
	"net/http"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func (s *Server) subscriptionList() collection[posthaste.SubscriptionInfo, wire.SubscriptionCount] {
	return collection[posthaste.SubscriptionInfo, wire.SubscriptionCount]{
		list: "subscriptions",
		all: func(_ context.Context, r *http.Request) ([]posthaste.SubscriptionInfo, error) {
			queue, err := s.findQueue(r)
			return queue.Subscriptions, err
		},
		key: func(one posthaste.SubscriptionInfo) string { return one.Name }, show: always(wire.NewSubscription),
	}
}

func (s *Server) showSubscription(w http.ResponseWriter, r *http.Request) error {
	found, err := s.findSubscription(r)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, wire.NewSubscription(found))
}

func (s *Server) findSubscription(r *http.Request) (posthaste.SubscriptionInfo, error) {
	queue, err := s.findQueue(r)
	if err != nil {
		return posthaste.SubscriptionInfo{}, err
	}
	name := r.PathValue("subscription")
	for _, one := range queue.Subscriptions {
		if one.Name == name {
			return one, nil
		}
	}
	return posthaste.SubscriptionInfo{}, &posthaste.Error{
		Code: posthaste.CodeNotFound, Field: "subscription", Message: "queue \"" + queue.Name + "\" has no subscription \"" + name + "\"",
		Hint: "GET /v1/queues/" + queue.Name + "/subscriptions lists them",
	}
}

// putSubscription adds a subscription (201). If it exists with these options, it changes
// nothing (200). If the options differ, it is a conflict, since they cannot be changed.
func (s *Server) putSubscription(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r, true)
	if err != nil {
		return err
	}
	options, err := wire.ParseSubscriptionOptions(body)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if _, err := s.findSubscription(r); posthaste.CodeOf(err) == posthaste.CodeNotFound {
		status = http.StatusCreated
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	if err := s.engine.Subscribe(ctx, r.PathValue("queue"), r.PathValue("subscription"), options); err != nil {
		return err
	}
	now, err := s.findSubscription(r)
	if err != nil {
		return err
	}
	if status == http.StatusCreated {
		w.Header().Set("Location", "/v1/queues/"+r.PathValue("queue")+"/subscriptions/"+now.Name)
	}
	return s.writeJSON(w, status, wire.NewSubscription(now))
}

func (s *Server) unsubscribe(ctx context.Context, r *http.Request) error {
	return s.engine.Unsubscribe(ctx, r.PathValue("queue"), r.PathValue("subscription"), posthaste.DropOptions{})
}

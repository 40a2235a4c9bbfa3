package remote

import (
	"context"

	"github.com/posthaste-mq/posthaste"
)

// unsupported is the error for what the API does not offer.
func unsupported(what string) error {
	return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "server-url", Message: "the HTTP API does not " + what,
		Hint: "select the database itself with --database-url or --redis-url"}
}

// Register implements [posthaste.Engine].
func (s *Store) Register(context.Context, posthaste.WorkerInfo) (posthaste.WorkerID, error) {
	return 0, unsupported("register workers")
}

// Heartbeat implements [posthaste.Engine].
func (s *Store) Heartbeat(context.Context, posthaste.Heartbeat) (posthaste.HeartbeatReply, error) {
	return posthaste.HeartbeatReply{}, unsupported("take heartbeats of workers")
}

// Unregister implements [posthaste.Engine].
func (s *Store) Unregister(context.Context, posthaste.WorkerID) error {
	return unsupported("register workers")
}

// Claim implements [posthaste.Engine].
func (s *Store) Claim(context.Context, posthaste.ClaimRequest) (posthaste.ClaimReply, error) {
	return posthaste.ClaimReply{}, unsupported("hand out messages to workers")
}

// Unsettled implements [posthaste.Engine].
func (s *Store) Unsettled(context.Context, posthaste.WorkerID, int64) ([]posthaste.DeliveryID, error) {
	return nil, unsupported("list the deliveries of workers")
}

// Report implements [posthaste.Engine].
func (s *Store) Report(context.Context, posthaste.WorkerID, []posthaste.HandlerStats) error {
	return unsupported("take reports of workers")
}

// Doorbell implements [posthaste.Engine]. [Store.ReceiveWithin] waits for messages.
func (s *Store) Doorbell(context.Context) (posthaste.Doorbell, error) {
	return nil, unsupported("wake workers")
}

// Maintain implements [posthaste.Engine].
func (s *Store) Maintain(context.Context, posthaste.Upkeep) (posthaste.MaintainReply, error) {
	return posthaste.MaintainReply{}, unsupported("do upkeep")
}

// Vitals implements [posthaste.Observer].
func (s *Store) Vitals(context.Context) (posthaste.Vitals, error) {
	return posthaste.Vitals{}, unsupported("show vitals, except in /metrics")
}

// CreateToken implements [posthaste.TokenStore].
func (s *Store) CreateToken(context.Context, posthaste.Token) (string, error) {
	return "", unsupported("create tokens")
}

// RevokeToken implements [posthaste.TokenStore].
func (s *Store) RevokeToken(context.Context, string) error { return unsupported("drop tokens") }

// TokensInForce implements [posthaste.TokenStore].
func (s *Store) TokensInForce(context.Context, ...string) ([]posthaste.Token, bool, error) {
	return nil, false, unsupported("show the hashes of tokens")
}

// DeliveryQueues implements [posthaste.TokenStore].
func (s *Store) DeliveryQueues(context.Context, ...posthaste.DeliveryID) ([]string, error) {
	return nil, unsupported("show the queues of deliveries")
}

package posthaste

import "context"

type actorKey struct{}

// WithActor returns a context whose operations are recorded as requested by actor (see
// [Action]), for example a person's or a token's name. Without an actor the user of the
// connection is recorded.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorOf returns the actor that [WithActor] set, or "".
func ActorOf(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)
	return actor
}

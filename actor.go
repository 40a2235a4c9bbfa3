package posthaste

import "context"

type actorKey struct{}

// WithActor returns a context that names the operator of the calls made with it, for example
// a person or a token. Calls that change something record it as [Action].By. Without an actor,
// PostgreSQL records the database user, and other engines record their name.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorOf returns the actor that [WithActor] set, or "".
func ActorOf(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)
	return actor
}

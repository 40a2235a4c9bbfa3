//go:build !unix

package bench

import (
	"context"

	"github.com/posthaste-mq/posthaste"
)

func (s *server) start(context.Context, *run) error {
	return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "database_url",
		Message: "there is no embedded PostgreSQL for this system", Hint: "name a server with --database-url"}
}

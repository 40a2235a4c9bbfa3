// Package worker breaks a rule: the runtime knows no engine.
package worker

import (
	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

var _ posthaste.Engine = (*postgres.Engine)(nil)

package nats

import (
	"context"
	"encoding/json"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// doctorSync reports how often the servers write to their disks. Only a user of the system account may
// ask them, or a server's monitoring port; to others it is unknown.
func (e *Engine) doctorSync(ctx context.Context) []posthaste.Finding {
	unknownSync := []posthaste.Finding{{Check: "sync", Message: "it is unknown how often the NATS servers sync to disk: with their default, a power failure of a majority loses up to two minutes of messages",
		Hint: "set sync_interval: always in the jetstream block of each server, if that must not happen"}}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	reply, err := e.conn.RequestWithContext(ctx, "$SYS.REQ.SERVER.PING.JSZ", []byte(`{"config":true}`))
	if err != nil {
		return unknownSync
	}
	var answer struct {
		Data struct {
			Config struct {
				SyncAlways   bool          `json:"sync_always"`
				SyncInterval time.Duration `json:"sync_interval"`
			} `json:"config"`
		} `json:"data"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return unknownSync
	}
	if answer.Data.Config.SyncAlways {
		return nil
	}
	return []posthaste.Finding{{Check: "sync", Message: "a NATS server syncs to disk every " + answer.Data.Config.SyncInterval.String() + ": a power failure of a majority loses what was sent since",
		Hint: "set sync_interval: always in the jetstream block of each server, if that must not happen"}}
}

package nats

import (
	"encoding/json"
	"errors"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// answersFor is how long Doctor waits after each answer for that of another server.
const answersFor = 500 * time.Millisecond

// syncs has the settings of a server for syncing its files to disk.
type syncs struct {
	Server struct {
		Name string `json:"name"`
	} `json:"server"`
	Data struct {
		Config struct {
			SyncAlways   bool          `json:"sync_always"`
			SyncInterval time.Duration `json:"sync_interval"`
		} `json:"config"`
	} `json:"data"`
}

// doctorSync reports how often the servers sync to disk. Only a user of the system account may ask them; for
// other users it is unknown.
func (e *Engine) doctorSync() (found []posthaste.Finding) {
	all, err := e.syncsOf()
	if err != nil || len(all) == 0 {
		return []posthaste.Finding{{Check: "sync", Message: "it is unknown how often the NATS servers sync to disk: with their default, a power failure of a majority loses up to two minutes of messages",
			Hint: "set sync_interval: always in the jetstream block of each server, if that must not happen"}}
	}
	for _, s := range all {
		if c := s.Data.Config; !c.SyncAlways {
			found = append(found, posthaste.Finding{Check: "sync", Message: "NATS server " + s.Server.Name + " syncs to disk every " + c.SyncInterval.String() + ": a power failure of a majority loses the messages since then",
				Hint: "set sync_interval: always in the jetstream block of each server, if that must not happen"})
		}
	}
	return found
}

// syncsOf asks all servers for these settings. Few users may: that the server refuses them explains no other call.
func (e *Engine) syncsOf() (all []syncs, err error) {
	defer e.denials.forgetSince(uptime())
	inbox := e.conn.NewInbox()
	sub, err := e.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := e.conn.PublishRequest("$SYS.REQ.SERVER.PING.JSZ", inbox, []byte(`{"config":true}`)); err != nil {
		return nil, err
	}
	for {
		m, err := sub.NextMsg(answersFor)
		if errors.Is(err, natsgo.ErrTimeout) || errors.Is(err, natsgo.ErrNoResponders) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var s syncs
		if err := json.Unmarshal(m.Data, &s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
}

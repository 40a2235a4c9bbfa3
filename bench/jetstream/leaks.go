package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// longestLeak is how long a server may keep an acknowledged message. It looks for such
// messages every 2 to 2.5 minutes.
const longestLeak = 160 * time.Second

// leaks makes each server the leader of the stream in turn, and counts the messages on the
// workers' subjects. It returns by how many they differ from the unfinished ones, at most.
func (t *trial) leaks(ctx context.Context, unfinished int) (leaked int, err error) {
	for _, n := range t.cluster {
		if err := t.lead(ctx, n.name); err != nil {
			return 0, err
		}
		start, left := time.Now(), 0
		for {
			if left, err = t.taken(ctx); err != nil {
				return 0, err
			}
			if left -= unfinished; left <= 0 || time.Since(start) > longestLeak {
				break
			}
			pause(ctx, time.Second)
		}
		info, err := t.info(ctx, "")
		if err != nil {
			return 0, err
		}
		lying, err := t.count(ctx, schedules)
		if err != nil {
			return 0, err
		}
		kept, err := t.count(ctx, records)
		if err != nil {
			return 0, err
		}
		t.tell("%s: %d messages in the stream, of which %d schedules and %d records; %d leaked, after %.0f s",
			info.Cluster.Leader, info.State.Msgs, lying, kept, left, time.Since(start).Seconds())
		leaked = max(leaked, left, -left)
	}
	return leaked, nil
}

// taken counts the messages on the workers' subjects.
func (t *trial) taken(ctx context.Context) (count int, err error) {
	for _, subject := range t.layout.filters {
		info, err := t.info(ctx, subject)
		if err != nil {
			return 0, err
		}
		count += int(info.State.Subjects[subject])
	}
	return count, nil
}

func (t *trial) info(ctx context.Context, filter string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	stream, err := t.js.Stream(ctx, streamName)
	if err != nil {
		return nil, err
	}
	if filter == "" {
		return stream.Info(ctx)
	}
	return stream.Info(ctx, jetstream.WithSubjectFilter(filter))
}

// lead makes a server the stream's leader.
func (t *trial) lead(ctx context.Context, name string) error {
	request, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": name}})
	if err != nil {
		return err
	}
	for start := time.Now(); time.Since(start) < time.Minute; pause(ctx, 500*time.Millisecond) {
		if info, err := t.info(ctx, ""); err == nil && info.Cluster != nil && info.Cluster.Leader == name {
			return nil
		}
		_, _ = t.sender.nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+streamName, request, sendTimeout) // the loop repeats it
	}
	return fmt.Errorf("%s does not become the leader of the stream", name)
}

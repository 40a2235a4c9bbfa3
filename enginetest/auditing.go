package enginetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var auditing = []test{
	{name: "ChangesAreRecorded", run: changesAreRecorded},
	{name: "ScheduleChangesAreRecorded", run: scheduleChangesAreRecorded, needs: features{Schedules: true}},
	{name: "TokenChangesAreRecorded", run: tokenChangesAreRecorded, needs: features{Tokens: true}},
}

// audited calls change with the context of an actor, and checks which actions that recorded.
func (s *suite) audited(what string, change func() error, want ...string) {
	s.Helper()
	actor, ctx := fmt.Sprintf("auditor %d", time.Now().UnixNano()), s.ctx
	s.ctx = posthaste.WithActor(ctx, actor)
	err := change()
	s.ctx = ctx
	s.must(err)
	var got []string
	for before := int64(0); ; {
		page, err := s.engine.Actions(s.ctx, posthaste.ActionFilter{Before: before, Limit: 1000})
		s.must(err)
		for _, a := range page {
			if before = a.ID; a.By == actor {
				got = append(got, a.Action+" "+a.Queue+strings.ReplaceAll(string(a.Details), ": ", ":"))
			}
		}
		if len(page) < 1000 {
			break
		}
	}
	slices.Reverse(got)
	if !slices.Equal(got, want) {
		s.Errorf("%s is recorded as %q, want %q", what, got, want)
	}
}

// actions returns the actions recorded for the queue since it was created, newest first.
func (s *suite) actions() []posthaste.Action {
	s.Helper()
	all, err := s.engine.Actions(s.ctx, posthaste.ActionFilter{Queue: s.queue})
	s.must(err)
	if n := len(all); n > 0 && all[n-1].Action == "create" {
		return all[:n-1]
	}
	s.Fatalf("the first of %d records is not that of the queue's creation", len(all))
	return nil
}

func changesAreRecorded(s *suite) {
	s.audited("creating a queue", func() error { return s.engine.CreateQueue(s.ctx, s.queue, quick()) }, "create "+s.queue)
	s.audited("creating it again", func() error { return s.engine.CreateQueue(s.ctx, s.queue, quick()) })
	s.audited("pausing", func() error { return s.engine.Pause(s.ctx, posthaste.OfQueue(s.queue), posthaste.PauseOptions{}) }, "pause "+s.queue)
	s.audited("pausing again", func() error { return s.engine.Pause(s.ctx, posthaste.OfQueue(s.queue), posthaste.PauseOptions{}) })
	s.audited("resuming", func() error { return s.engine.Resume(s.ctx, posthaste.OfQueue(s.queue)) }, "resume "+s.queue)
	s.audited("resuming again", func() error { return s.engine.Resume(s.ctx, posthaste.OfQueue(s.queue)) })
	s.audited("dropping", func() error { return s.engine.DropQueue(s.ctx, s.queue, posthaste.DropOptions{}) }, "drop "+s.queue)
	if all, err := s.engine.Actions(s.ctx, posthaste.ActionFilter{Queue: s.queue}); err != nil || len(all) == 0 || all[0].Action != "drop" {
		s.Errorf("after the drop the records of the queue are %+v, %v", all, err)
	}
	s.audited("dropping again", func() error {
		s.wantCode("dropping again", s.engine.DropQueue(s.ctx, s.queue, posthaste.DropOptions{}), posthaste.CodeNotFound)
		return nil
	})
}

func scheduleChangesAreRecorded(s *suite) {
	s.create(posthaste.QueueOptions{})
	name := s.queue + "-s"
	put := s.every("every 2 hours")
	put.Name = name
	details := fmt.Sprintf(`{"schedule":%q}`, name)
	again := func() error { _, err := s.engine.PutSchedule(s.ctx, put); return err }
	s.audited("putting a schedule", again, "schedule_put "+details)
	s.audited("putting it again", again)
	put.Message.Key = "other"
	s.audited("changing it", again, "schedule_put "+details)
	s.audited("pausing", func() error { return s.engine.Pause(s.ctx, posthaste.OfSchedule(name), posthaste.PauseOptions{}) }, "schedule_pause "+details)
	s.audited("pausing again", func() error { return s.engine.Pause(s.ctx, posthaste.OfSchedule(name), posthaste.PauseOptions{}) })
	s.audited("resuming", func() error { return s.engine.Resume(s.ctx, posthaste.OfSchedule(name)) }, "schedule_resume "+details)
	s.audited("resuming again", func() error { return s.engine.Resume(s.ctx, posthaste.OfSchedule(name)) })
	s.audited("running", func() error { _, err := s.engine.RunSchedule(s.ctx, name); return err }, "schedule_run "+s.queue+details)
	s.audited("dropping", func() error { return s.engine.DropSchedule(s.ctx, name) }, "schedule_drop "+details)
}

// A token's secret is in no record.
func tokenChangesAreRecorded(s *suite) {
	name := s.queue + "-t"
	details := fmt.Sprintf(`{"token":%q}`, name)
	s.audited("creating a token", func() error {
		_, err := s.engine.CreateToken(s.ctx, posthaste.Token{Name: name, Scopes: []posthaste.Scope{posthaste.ScopeSend}})
		return err
	}, "token_add "+details)
	s.audited("revoking it", func() error { return s.engine.RevokeToken(s.ctx, name) }, "token_drop "+details)
}

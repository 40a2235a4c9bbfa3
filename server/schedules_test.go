package server

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func TestSchedules(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.call("PUT", "/v1/queues/reports", "").want(t, 201)
	var s wire.Schedule
	a.call("PUT", "/v1/schedules/beat", `{"queue":"reports","spec":"every 2 hours","catch_up":"each","payload":{"a":1},"key":"k","kind":"b","headers":{"h":"v"},"reference":"r","terms":["t"],"priority":1}`).want(t, 201).into(t, &s)
	if s.Name != "beat" || s.Queue != "reports" || s.CatchUp != "each" || string(s.Payload) != `{"a":1}` || s.Priority != 1 || s.NextAt.IsZero() || len(s.Upcoming) != 5 {
		t.Errorf("it is shown as %+v", s)
	}
	var all []wire.Schedule
	a.call("GET", "/v1/schedules", "").want(t, 200).items(t, &all)
	if len(all) != 1 || all[0].Name != "beat" {
		t.Errorf("listed: %+v", all)
	}
	var paused wire.Schedule
	a.call("POST", "/v1/schedules/beat/pause", "").want(t, 200).into(t, &paused)
	if paused.PausedAt.IsZero() || !paused.NextAt.IsZero() {
		t.Errorf("paused it is shown as %+v", paused)
	}
	a.call("POST", "/v1/schedules/beat/resume", "").want(t, 200).into(t, &s)
	if !s.PausedAt.IsZero() || s.NextAt.IsZero() {
		t.Errorf("resumed it is shown as %+v", s)
	}
	for body, field := range map[string]string{
		`{"queue":"reports","spec":"every 0 seconds"}`:                                        "spec",
		`{"queue":"reports"}`:                                                                 "spec",
		`{"spec":"every 1 hour"}`:                                                             "queue",
		`{"queue":"reports","spec":"every 1 hour","time_zone":"Nowhere"}`:                     "time_zone",
		`{"queue":"reports","spec":"every 1 hour","catch_up":"all"}`:                          "catch_up",
		`{"queue":"reports","spec":"every 1 hour","delay":"1s"}`:                              "delay",
		`{"queue":"reports","spec":"every 1 hour","wake":false}`:                              "wake",
		`{"queue":"reports","spec":"every 1 hour","dedupe_key":"d"}`:                          "dedupe_key",
		`{"queue":"reports","spec":"every 1 hour","payload":"AAAA","content_type":"image/x"}`: "content_type",
		`{"queue":"reports","spec":"every 1 hour","color":"red"}`:                             "color",
		`{"queue":"reports","spec":7}`:                                                        "spec",
	} {
		reply := a.call("PUT", "/v1/schedules/bad", body)
		if reply.status != 400 && reply.status != 501 || reply.problem(t).Field != field {
			t.Errorf("%s: %d %s, want the field %s", body, reply.status, reply.body, field)
		}
	}
	a.call("GET", "/v1/schedules/bad", "").want(t, 404)
	a.call("PUT", "/v1/schedules/bad", `{"queue":"nowhere","spec":"every 1 hour"}`).want(t, 404)
	a.call("DELETE", "/v1/schedules/beat", "").want(t, 204)
	for _, c := range [][2]string{{"DELETE", ""}, {"POST", "/pause"}, {"POST", "/resume"}, {"POST", "/run"}} {
		a.call(c[0], "/v1/schedules/beat"+c[1], "").want(t, 404)
	}
}

// A schedule is run by hand, also while it is paused, and its next tick does not change.
func TestSchedulesRunNow(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.call("PUT", "/v1/queues/reports", "").want(t, 201)
	var before, after wire.Schedule
	a.call("PUT", "/v1/schedules/beat", `{"queue":"reports","spec":"every 2 hours","payload":{"a":1},"key":"k","headers":{"h":"v"}}`).want(t, 201).into(t, &before)
	for _, state := range []string{"resume", "pause"} {
		a.call("POST", "/v1/schedules/beat/"+state, "").want(t, 200)
		var one wire.Sent
		ran := a.call("POST", "/v1/schedules/beat/run", "").want(t, 201)
		ran.into(t, &one)
		if want := "/v1/messages/" + one.ID.String(); ran.header.Get("Location") != want {
			t.Errorf("Location is %q, want %q", ran.header.Get("Location"), want)
		}
		var got wire.Message
		a.call("GET", ran.header.Get("Location"), "").want(t, 200).into(t, &got)
		if got.Queue != "reports" || string(got.Payload) != `{"a":1}` || got.Key != "k" || got.Headers["h"] != "v" || got.Headers[posthaste.HeaderSchedule] != "beat" {
			t.Errorf("it sent %+v", got)
		}
	}
	a.call("POST", "/v1/schedules/beat/resume", "").want(t, 200).into(t, &after)
	if after.Sent != 0 || !after.LastTick.IsZero() || after.NextAt.Before(before.NextAt) {
		t.Errorf("before it ran %+v, and after %+v", before, after)
	}
}

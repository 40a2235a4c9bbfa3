package server

import (
	"testing"

	"github.com/posthaste-mq/posthaste/internal/wire"
)

func TestSchedules(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.call("PUT", "/v1/queues/reports", "").want(t, 201)
	var s wire.Schedule
	a.call("PUT", "/v1/schedules/beat", `{"queue":"reports","spec":"every 2 hours","catch_up":"each","payload":{"a":1},"key":"k","kind":"b","headers":{"h":"v"},"reference":"r","terms":["t"],"priority":1}`).want(t, 200).into(t, &s)
	if s.Name != "beat" || s.Queue != "reports" || s.CatchUp != "each" || string(s.Payload) != `{"a":1}` || s.Priority != 1 || s.NextAt.IsZero() || len(s.Upcoming) != 5 {
		t.Errorf("it is shown as %+v", s)
	}
	var all []wire.Schedule
	a.call("GET", "/v1/schedules", "").want(t, 200).into(t, &all)
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
	for _, c := range [][2]string{{"DELETE", ""}, {"POST", "/pause"}, {"POST", "/resume"}} {
		a.call(c[0], "/v1/schedules/beat"+c[1], "").want(t, 404)
	}
}

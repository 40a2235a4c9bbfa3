package server

import (
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// A pause has a reason and an end, which the lists of pauses show.
func TestPauses(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.call("PUT", "/v1/queues/reports", "").want(t, 201)
	a.call("PUT", "/v1/queues/other", "").want(t, 201)
	a.call("PUT", "/v1/schedules/beat", `{"queue":"reports","spec":"every 2 hours"}`).want(t, 201)
	a.call("POST", "/v1/queues/reports/pause", "").want(t, 200)
	a.call("POST", "/v1/queues/reports/pause", `{}`).want(t, 200)
	a.call("POST", "/v1/queues/reports/kinds/pause", `{"kind":"sms","reason":"INC-7","for":"30m"}`).want(t, 200)
	a.call("POST", "/v1/schedules/beat/pause", `{"reason":"month end","until":"2100-01-02T03:04:05.000006Z"}`).want(t, 200)
	var all, of []wire.Pause
	a.call("GET", "/v1/pauses", "").want(t, 200).items(t, &all)
	if len(all) != 3 || all[0].What != "schedule" || all[0].Schedule != "beat" || all[0].Queue != "" || all[0].Until != time.Date(2100, 1, 2, 3, 4, 5, 6000, time.UTC) || all[0].Reason != "month end" {
		t.Errorf("the pauses are %+v", all)
	}
	a.call("GET", "/v1/queues/reports/pauses", "").want(t, 200).items(t, &of)
	if len(of) != 2 || of[0].Kind != "sms" || of[0].Queue != "reports" || of[0].Reason != "INC-7" || time.Until(of[0].Until) > 30*time.Minute || time.Until(of[0].Until) < 25*time.Minute || of[1].What != "queue" || !of[1].Until.IsZero() {
		t.Errorf("the pauses of the queue are %+v", of)
	}
	a.call("GET", "/v1/queues/other/pauses", "").want(t, 200).items(t, &of)
	if len(of) != 0 {
		t.Errorf("the pauses of another queue are %+v", of)
	}
	a.call("GET", "/v1/queues/nowhere/pauses", "").wantProblem(t, 404, posthaste.CodeNotFound, "queue")
	for body, field := range map[string]string{
		`{"until":"2020-01-01T00:00:00Z"}`:            "until",
		`{"until":"tomorrow"}`:                        "until",
		`{"until":"2999-01-01T00:00:00Z"}`:            "until",
		`{"for":"soon"}`:                              "for",
		`{"for":"0s"}`:                                "for",
		`{"for":"1h","until":"2100-01-01T00:00:00Z"}`: "for",
		`{"reason":"a\nb"}`:                           "reason",
		`{"because":"x"}`:                             "because",
	} {
		for _, path := range []string{"/v1/queues/other/pause", "/v1/schedules/beat/pause"} {
			a.call("POST", path, body).wantProblem(t, 400, posthaste.CodeInvalid, field)
		}
	}
	a.call("POST", "/v1/queues/reports/kinds/resume", `{"kind":"sms","reason":"x"}`).wantProblem(t, 400, posthaste.CodeInvalid, "reason")
	a.call("POST", "/v1/queues/reports/resume", `{}`).wantProblem(t, 400, posthaste.CodeInvalid, "")
}

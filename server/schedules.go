package server

import (
	"context"
	"net/http"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func (s *Server) allSchedules(ctx context.Context) ([]posthaste.ScheduleInfo, error) {
	return s.engine.Schedules(ctx)
}

func (s *Server) dropSchedule(ctx context.Context, r *http.Request) error {
	return s.engine.DropSchedule(ctx, r.PathValue("schedule"))
}

func (s *Server) showSchedule(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := s.operation(r)
	defer cancel()
	name := r.PathValue("schedule")
	schedules, err := s.engine.Schedules(ctx, name)
	if err != nil {
		return err
	}
	if len(schedules) == 0 {
		return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "schedule", Message: "there is no schedule \"" + name + "\""}
	}
	return s.writeJSON(w, http.StatusOK, wire.NewSchedule(schedules[0]))
}

// putSchedule creates or changes a schedule and answers with it.
func (s *Server) putSchedule(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r, false)
	if err != nil {
		return err
	}
	schedule, err := wire.ParseSchedule(r.PathValue("schedule"), body)
	if err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	if _, err := s.engine.PutSchedule(ctx, schedule); err != nil {
		return err
	}
	return s.showSchedule(w, r)
}

// pauseSchedule pauses or resumes a schedule and answers with it.
func (s *Server) pauseSchedule(change func(context.Context, posthaste.Pausable) error) answer {
	return func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := s.operation(r)
		defer cancel()
		if err := change(ctx, posthaste.OfSchedule(r.PathValue("schedule"))); err != nil {
			return err
		}
		return s.showSchedule(w, r)
	}
}

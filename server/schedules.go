package server

import (
	"context"
	"net/http"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func (s *Server) listSchedules(w http.ResponseWriter, r *http.Request) error {
	if err := readQuery(r).err; err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	schedules, err := s.engine.Schedules(ctx)
	if err != nil {
		return err
	}
	shown := make([]wire.Schedule, len(schedules))
	for i, schedule := range schedules {
		shown[i] = wire.NewSchedule(schedule)
	}
	return s.writeJSON(w, http.StatusOK, shown)
}

func (s *Server) showSchedule(w http.ResponseWriter, r *http.Request) error {
	if err := readQuery(r).err; err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	name := r.PathValue("schedule")
	schedules, err := s.engine.Schedules(ctx, name)
	if err != nil {
		return err
	}
	if len(schedules) == 0 {
		return &posthaste.Error{Code: posthaste.NotFound, Field: "schedule", Message: "there is no schedule \"" + name + "\"", Hint: "make it with PUT /v1/schedules/" + name}
	}
	return s.writeJSON(w, http.StatusOK, wire.NewSchedule(schedules[0]))
}

// putSchedule makes or changes a schedule, and shows it.
func (s *Server) putSchedule(w http.ResponseWriter, r *http.Request) error {
	if err := readQuery(r).err; err != nil {
		return err
	}
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
	if _, err := s.engine.SchedulePut(ctx, schedule); err != nil {
		return err
	}
	return s.showSchedule(w, r)
}

func (s *Server) dropSchedule(w http.ResponseWriter, r *http.Request) error {
	if err := s.onSchedule(r, s.engine.ScheduleDrop); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) pauseSchedule(w http.ResponseWriter, r *http.Request) error {
	if err := s.onSchedule(r, s.engine.SchedulePause); err != nil {
		return err
	}
	return s.showSchedule(w, r)
}

func (s *Server) resumeSchedule(w http.ResponseWriter, r *http.Request) error {
	err := s.onSchedule(r, func(ctx context.Context, name string) error {
		_, err := s.engine.ScheduleResume(ctx, name)
		return err
	})
	if err != nil {
		return err
	}
	return s.showSchedule(w, r)
}

// onSchedule does what needs nothing but the schedule's name.
func (s *Server) onSchedule(r *http.Request, do func(context.Context, string) error) error {
	if err := readQuery(r).err; err != nil {
		return err
	}
	if err := refuseBody(r); err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	return do(ctx, r.PathValue("schedule"))
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	// idleQueues is the number of the worker's queues.
	idleQueues = 20
	// idleSettling is the time that a worker may take to fall asleep.
	idleSettling = 3 * time.Second
	// idleWanted is the shortest valid time of measurement, because a worker does some things
	// only every 3 s.
	idleWanted = 6 * time.Second
)

// idle counts the statements and the CPU time of a worker whose queues are empty.
func idle(ctx context.Context, r *run) (err error) {
	at, err := r.home(ctx, "idle")
	if err != nil {
		return err
	}
	queues, err := createIdleQueues(ctx, r, at)
	if err != nil {
		return err
	}
	wire, err := at.openWire()
	if err != nil {
		return err
	}
	defer wire.close()
	c, err := startChild(ctx, "handler", order{home: home{wire.url, at.Prefix}, Queues: queues})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.end()) }()

	r.begin()
	r.phase("falling asleep")
	settling := min(idleSettling, r.part(0.25))
	if err := pause(ctx, settling); err != nil {
		return err
	}
	before, err := c.ask(order{Expect: 1})
	if err != nil {
		return err
	}
	r.phase("counting statements of an idle worker")
	server := cost{meter: r.meter()}
	end := server.span()
	statements, begun := wire.statements.Load(), time.Now()
	if err := pause(ctx, r.part(1)-settling); err != nil {
		return err
	}
	took := time.Since(begun)
	statements = wire.statements.Load() - statements
	end(1)
	after, err := c.ask(order{Expect: 1})
	if err != nil {
		return err
	}
	result := &IdleResult{Queues: idleQueues, Statements: statements, MeasuredSeconds: round(took.Seconds(), 2),
		StatementsPerSecond: *known(rate(statements, took)),
		CPUPercent:          *known(100 * (after.CPU - before.CPU).Seconds() / took.Seconds()),
		RSSMB:               round(after.RSSMB, 1)}
	if !server.unknown {
		result.ServerCPUPercent = known(100 * server.server.Seconds() / took.Seconds())
	}
	r.result.IdleResult = result
	if took < idleWanted {
		r.invalid("%s of idling are too few to say how often something happens: %s are wanted, which takes a duration of %s",
			took.Round(100*time.Millisecond), idleWanted, idleWanted+idleSettling)
	}
	return nil
}

func createIdleQueues(ctx context.Context, r *run, at home) (queues []string, err error) {
	engine, err := at.open(ctx, r.o.Log)
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	for i := range idleQueues {
		name := fmt.Sprintf("idle-%d", i+1)
		if err := engine.CreateQueue(ctx, name, posthaste.QueueOptions{}); err != nil {
			return nil, err
		}
		queues = append(queues, name)
	}
	return queues, nil
}

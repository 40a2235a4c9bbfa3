package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// usage is used CPU time, in seconds.
type usage struct {
	server, client, self, machine float64
	serverKnown                   bool
	elapsed                       float64 // since an arbitrary time
}

// read reads the CPU time of all measured processes and of the machine.
func (c *cell) read(ctx context.Context) (u usage, err error) {
	working, err := c.report(ctx)
	if err != nil {
		return u, err
	}
	u.client = working / 1e6
	if c.send != nil {
		r, err := c.send.ask(ctx, line{Report: true})
		if err != nil {
			return u, err
		}
		u.client += *r.CPU / 1e6
	}
	server, ok := c.bench.server.meter.Total()
	u.server, u.serverKnown = server.Seconds(), ok
	u.self, u.elapsed = *ownCPU()/1e6, seconds(monotonic())
	u.machine, err = machineBusy()
	return u, err
}

func (u usage) since(before usage) usage {
	return usage{server: u.server - before.server, client: u.client - before.client, self: u.self - before.self,
		machine: u.machine - before.machine, elapsed: u.elapsed - before.elapsed, serverKnown: u.serverKnown && before.serverKnown}
}

// others returns the CPU share of other programs, in percent. CPU time that the hypervisor
// gave to other machines counts.
func (u usage) others(cores int) *float64 {
	if !u.serverKnown {
		return nil
	}
	v := per(100*(u.machine-u.server-u.client-u.self), u.elapsed*float64(cores))
	if v != nil && *v < 0 {
		return known(0) // ticks are coarse
	}
	return v
}

// machineBusy returns the time for which the processors were not idle.
func machineBusy() (float64, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	first, _, _ := bytes.Cut(b, []byte("\n"))
	fields := strings.Fields(string(first))
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q; expected cpu and eight numbers", first)
	}
	const idle, iowait, perSecond = 4, 5, 100
	sum := 0.0
	for i := 1; i <= 8; i++ {
		if i != idle && i != iowait {
			n, _ := strconv.ParseFloat(fields[i], 64)
			sum += n
		}
	}
	return sum / perSecond, nil
}

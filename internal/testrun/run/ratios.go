package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// bound is a lower or upper limit of a bench's figure. The field is a path, such as ratio or
// variants.0.flow.ratio.
type bound struct {
	field       string // of the result's JSON
	least, most float64
}

// benches are the figures that docs/explanation/performance.md claims, each with its required limit, not
// the best measured value.
var benches = []struct {
	args    string
	minutes int
	bounds  []bound
}{
	{"flow", 1, []bound{{field: "ratio", least: 0.40}}},
	{"flow --batch 100", 1, []bound{{field: "ratio", least: 0.25}}},
	{"single", 1, []bound{{field: "ratio", least: 0.8}}},
	{"pinned --duration 60s", 2, []bound{{field: "ratio", least: 0.9}}},
	{"pinned --keyed=ordered --duration 60s", 3, []bound{{field: "sixths_cpu_ratio", most: 1.3}}},
	{"backlog --duration 30s", 2, []bound{{field: "ratio", least: 0.9}}},
	{"backlog --waiting 10000000 --duration 5m", 9, []bound{{field: "ratio", least: 0.9}}},
	// Ways 2, 3 and 4 of transactional send with SQL, with postgres.In and with Engine.Send
	// alone, with a worker; 5, 6 and 7 without one.
	{"transactional --duration 60s", 2, []bound{{field: "ways.2.ratio_to_two_rows", least: 0.41}, {field: "ways.3.ratio_to_two_rows", least: 0.41},
		{field: "ways.5.ratio_to_two_rows", least: 0.47}, {field: "ways.6.ratio_to_two_rows", least: 0.45}, {field: "ways.7.ratio_to_two_rows", least: 0.5}, fewNotifications}},
	{"transactional --queues 20 --duration 60s", 2, []bound{{field: "ways.3.ratio_to_two_rows", least: 0.33}, {field: "ways.6.ratio_to_two_rows", least: 0.4}, fewNotifications}},
	// Way 1 of senders is Engine.Send, way 3 single messages over HTTP and way 4 arrays, all
	// with a worker.
	{"senders --duration 60s", 2, []bound{{field: "ways.3.ratio_to_engine_send", least: 0.6}, {field: "ways.3.http_server_cpu_us", most: 120},
		{field: "ways.4.http_server_cpu_us", most: 20}, fewNotifications}},
	{"senders --workers 4 --duration 60s", 2, []bound{fewNotifications}},
	{"senders --workers 4 --queues 20 --duration 60s", 2, []bound{fewNotifications}},
	{"senders --engine redis --duration 60s", 2, []bound{{field: "ways.1.ratio_to_plain", least: 0.15}, {field: "ways.3.http_server_cpu_us", most: 120}, fewNotifications}},
	{"senders --engine redis --workers 4 --duration 60s", 2, []bound{fewNotifications}},
	{"latency --duration 8s", 1, []bound{{field: "p50_ms", most: 3}, {field: "p99_ms", most: 15}}},
	{"latency --open-sender --duration 8s", 1, []bound{{field: "p50_ms", most: 3}, {field: "p99_ms", most: 15}}},
	{"ordered", 1, []bound{{field: "ratio", least: 0.5}}},
	{"kinds --duration 60s", 2, []bound{{field: "flow_cpu_ratio", most: 1.05}}},
	{"idle", 1, []bound{{field: "statements_per_second", most: 2}, {field: "cpu_percent", most: 1}}},
	// Variant 0 is without telemetry, 1 with metrics, 2 also with one trace in a hundred.
	{"telemetry --duration 60s", 2, []bound{{field: "variants.1.flow.ratio", least: 0.95}, {field: "variants.1.single.ratio", least: 0.95},
		{field: "variants.2.flow.ratio", least: 0.85}, {field: "variants.2.single.ratio", least: 0.85}}},
	{"relay", 1, []bound{{field: "ratio", least: 0.7}, {field: "confirm_p50_ms", most: 5}}},
	{"relay --queue-type quorum", 1, []bound{{field: "ratio", least: 0.7}}},
	{"relay --broker nats", 1, []bound{{field: "ratio", least: 0.6}}},
	{"relay --broker redis", 1, []bound{{field: "ratio", least: 0.45}}},
	{"relay --broker kafka", 1, []bound{{field: "ratio", least: 0.2}}},
	{"pipeline", 1, []bound{{field: "per_minute", least: 200_000}}},
	{"redis", 1, []bound{{field: "at_least_once_ratio", least: 3}, {field: "at_most_once_ratio", least: 3}}},
	// Ways 0 to 5 of nats: singly, gathered, atomic batches of 10, 100 and 1,000, handled.
	{"nats --duration 60s", 2, []bound{{field: "nats_ways.0.ratio_to_raw", least: 0.6}, {field: "nats_ways.2.ratio_to_raw", least: 0.6}, {field: "nats_ways.4.ratio_to_raw", least: 0.6}, {field: "nats_ways.5.ratio_to_raw", least: 0.5}}},
	{"nats --servers 3 --duration 60s", 2, []bound{{field: "nats_ways.0.ratio_to_raw", least: 0.6}, {field: "nats_ways.5.ratio_to_raw", least: 0.5}}},
	{"latency --engine redis --duration 8s", 1, []bound{{field: "p50_ms", most: 1}, {field: "p99_ms", most: 5}}},
}

// fewNotifications is the limit for dense traffic, over all queues of a database and all
// processes.
var fewNotifications = bound{field: "most_notifications_per_second", most: 20}

func ratios() []step {
	var steps []step
	for _, b := range benches {
		steps = append(steps, step{name: "bench " + b.args, minutes: b.minutes,
			command: append([]string{"go", "run", "./cmd/posthaste", "bench", "--json"}, strings.Fields(b.args)...),
			check:   func(output string) (string, error) { return judge(output, b.bounds) }})
	}
	return steps
}

// judge reads a bench's result, which is the last line of its output that is an object, and
// compares its figures to the bounds.
func judge(output string, bounds []bound) (figures string, err error) {
	start := strings.Index(output, "{")
	if start < 0 {
		return "", errors.New("the bench printed no result")
	}
	var fields any
	if err := json.NewDecoder(strings.NewReader(output[start:])).Decode(&fields); err != nil {
		return "", fmt.Errorf("the bench's result cannot be read: %w", err)
	}
	var said []string
	var broken []error
	for _, b := range bounds {
		value, ok := at(fields, b.field).(float64)
		if !ok {
			broken = append(broken, fmt.Errorf("the result has no %q", b.field))
			continue
		}
		said = append(said, fmt.Sprintf("%s %.3g (%s)", b.field, value, b))
		if value < b.least || b.most > 0 && value > b.most {
			broken = append(broken, fmt.Errorf("%s is %.3g, and must be %s", b.field, value, b))
		}
	}
	return strings.Join(said, ", "), errors.Join(broken...)
}

// at returns the value at a path such as "variants.0.flow", or nil.
func at(value any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[name]
		case []any:
			n, err := strconv.Atoi(name)
			if err != nil || n < 0 || n >= len(v) {
				return nil
			}
			value = v[n]
		default:
			return nil
		}
	}
	return value
}

func (b bound) String() string {
	if b.most > 0 {
		return fmt.Sprintf("at most %g", b.most)
	}
	return fmt.Sprintf("at least %g", b.least)
}

package postgres

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// Reading a trace context allocates the map of headers, but no text if the message before has
// the same one. Not parallel, because it counts all allocations of the process.
func TestTraceOfNeighboursIsReadOnce(t *testing.T) {
	const one, two = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-00"
	row := make([][]byte, deliveryWidth)
	var texts shared
	reads := func() posthaste.RawDelivery {
		d, err := readDelivery(row, &texts)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	without := testing.AllocsPerRun(1000, func() { reads() })
	row[deliveryTraceParent] = []byte(one)
	first := reads()
	if with := testing.AllocsPerRun(1000, func() { reads() }); with > without+2 {
		t.Errorf("a message with the trace of the one before costs %v allocations, and %v without one", with, without)
	}
	copy(row[deliveryTraceParent], two) // the values are only valid during the call
	second := reads()
	first.Headers["handler"] = "may write"
	if again := reads(); first.Headers[posthaste.HeaderTraceParent] != one || second.Headers[posthaste.HeaderTraceParent] != two || len(again.Headers) != 1 {
		t.Errorf("read %v, %v and %v", first.Headers, second.Headers, again.Headers)
	}
}

// Kinds that rows before had cost no allocation, and do not change with the row. Not parallel, as
// above.
func TestKindsAreReadOnce(t *testing.T) {
	row := make([][]byte, deliveryWidth)
	var texts shared
	reads := func(kind string) string {
		row[deliveryKind] = append(row[deliveryKind][:0], kind...)
		d, err := readDelivery(row, &texts)
		if err != nil {
			t.Fatal(err)
		}
		return d.Kind
	}
	without := testing.AllocsPerRun(1000, func() { reads("") })
	first, second := reads("email"), reads("other")
	if with := testing.AllocsPerRun(1000, func() { reads("email"); reads("other") }); with > 2*without {
		t.Errorf("two messages of known kinds cost %v allocations, and one without a kind %v", with, without)
	}
	if first != "email" || second != "other" || reads("") != "" {
		t.Errorf("read %q, %q", first, second)
	}
}

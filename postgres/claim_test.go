package postgres

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// A trace costs what reads a message its map, and no text of its own where the
// message before was sent by the same call.
// Not parallel: it counts the whole process's allocations.
func TestTraceOfNeighboursIsReadOnce(t *testing.T) {
	const one, two = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-00"
	row := make([][]byte, 14)
	var trace string
	reads := func() posthaste.RawDelivery {
		d, err := readDelivery(row, &trace)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	without := testing.AllocsPerRun(1000, func() { reads() })
	row[13] = []byte(one)
	first := reads()
	if with := testing.AllocsPerRun(1000, func() { reads() }); with > without+2 {
		t.Errorf("a message with its neighbour's trace costs %v allocations, and %v without one", with, without)
	}
	copy(row[13], two) // what is read is only lent
	second := reads()
	first.Headers["handler"] = "may write"
	if again := reads(); first.Headers[posthaste.HeaderTraceParent] != one || second.Headers[posthaste.HeaderTraceParent] != two || len(again.Headers) != 1 {
		t.Errorf("read %v, %v and %v", first.Headers, second.Headers, again.Headers)
	}
}

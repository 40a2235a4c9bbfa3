package redis

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// A merged search finds each message below a bound once, newest first, also if ids of several queues
// have the same place and subscriptions share messages.
func TestMergedSearchFindsEachMessageOnce(t *testing.T) {
	t.Parallel()
	for range 300 {
		var want []posthaste.MessageID
		places := map[*queue][][]int64{} // of each subscription
		s := &searching{}
		for number := range 1 + rand.Int64N(5) {
			q := &queue{number: number + 1}
			some := make([][]int64, 1+rand.N(3))
			for place := range int64(40) {
				known := false
				for i := range some {
					if rand.N(4) == 0 {
						some[i], known = append(some[i], place+1), true
					}
				}
				if known {
					want = append(want, posthaste.MessageID((place+1)<<numberBits|q.number))
				}
			}
			places[q] = some
			s.strands = append(s.strands, &strand{q: q, most: 1 + rand.N(5), from: 40, more: true})
		}
		slices.SortFunc(want, func(a, b posthaste.MessageID) int { return cmp.Compare(b, a) })
		if len(want) > 0 && rand.N(2) == 0 {
			at := rand.N(len(want))
			s.before, want = want[at], want[at+1:]
			for _, one := range s.strands {
				one.from = int64(s.before) >> numberBits
			}
		}
		s.source = sourceOf(places)
		var got []posthaste.MessageID
		for {
			if err := s.read(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(s.strands) == 0 {
				break
			}
			next, lowest := s.next(1 + rand.N(10))
			for _, c := range next {
				got = append(got, posthaste.MessageID(c.place<<numberBits|c.q.number))
			}
			if len(next) == 0 || lowest != got[len(got)-1] {
				t.Fatalf("the lowest of %v is %d", next, lowest)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("found are %v, want %v", got, want)
		}
	}
}

// sourceOf is the source of these places, of each subscription of a queue.
func sourceOf(places map[*queue][][]int64) source {
	return func(_ context.Context, strands []*strand) error {
		for _, one := range strands {
			for _, all := range places[one.q] {
				below := slices.DeleteFunc(slices.Clone(all), func(place int64) bool { return place > one.from })
				slices.Reverse(below)
				one.got = append(one.got, below[:min(len(below), one.most)]...)
			}
		}
		return nil
	}
}

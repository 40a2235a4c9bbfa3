package wire

import (
	"cmp"
	"context"
	"slices"

	"github.com/posthaste-mq/posthaste"
)

// MessagesIn lists the messages in any of the states, newest first.
func MessagesIn(ctx context.Context, e posthaste.MessageAdmin, f posthaste.MessageFilter, states []posthaste.State) (posthaste.Page[posthaste.MessageInfo], error) {
	var all []posthaste.MessageInfo
	var cutAt posthaste.MessageID
	for _, f.State = range states {
		some, err := e.Messages(ctx, f)
		if err != nil {
			return some, err
		}
		all, cutAt = append(all, some.Items...), max(cutAt, some.Next)
	}
	// Messages before the highest end of a page are on the next page, for which all states are
	// searched. A message that changed its state between the searches can appear twice.
	all = slices.DeleteFunc(all, func(m posthaste.MessageInfo) bool { return m.ID < cutAt })
	slices.SortStableFunc(all, func(a, b posthaste.MessageInfo) int { return cmp.Compare(b.ID, a.ID) })
	all = slices.CompactFunc(all, func(a, b posthaste.MessageInfo) bool { return a.ID == b.ID })
	return posthaste.NewPage(all[:min(len(all), f.Limit)], f.Limit, cutAt, func(m *posthaste.MessageInfo) posthaste.MessageID { return m.ID }), nil
}

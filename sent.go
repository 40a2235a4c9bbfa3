package posthaste

// Sent is the result of sending one message.
type Sent struct {
	// ID is the message's id, or that of the earlier message if Duplicate is set.
	ID MessageID
	// Duplicate says that the message was not stored, because the earlier message ID has its
	// dedupe key or its unique key.
	Duplicate bool
	// Replaced says that the message replaced the content of the waiting message ID, which
	// has its unique key.
	Replaced bool
	// State is the state of the earlier message, the first of its subscriptions' that holds
	// the unique key. Empty unless Duplicate is set by a unique key.
	State State
}

// IDs returns the ids of a send's result: ids, err := posthaste.IDs(client.Send(ctx, m)).
func IDs(sent []Sent, err error) ([]MessageID, error) {
	if sent == nil {
		return nil, err
	}
	ids := make([]MessageID, len(sent))
	for i := range sent {
		ids[i] = sent[i].ID
	}
	return ids, err
}

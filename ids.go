package posthaste

import "strconv"

// MessageID identifies a message for the lifetime of the ledger. It is the position of the
// message's first entry and is never reused. In JSON it is a string, because it may exceed
// the integers that a double represents exactly.
type MessageID int64

// String returns the id in decimal.
func (id MessageID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalText implements [encoding.TextMarshaler].
func (id MessageID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (id *MessageID) UnmarshalText(text []byte) error {
	n, err := parseID("message id", text)
	*id = MessageID(n)
	return err
}

// DeliveryID identifies one delivery of one entry to one subscription. It fences that
// attempt: a settled delivery cannot be settled again.
type DeliveryID int64

// String returns the id in decimal.
func (id DeliveryID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalText implements [encoding.TextMarshaler].
func (id DeliveryID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (id *DeliveryID) UnmarshalText(text []byte) error {
	n, err := parseID("delivery id", text)
	*id = DeliveryID(n)
	return err
}

// WorkerID identifies the registration of one process as a worker.
type WorkerID int64

// String returns the id in decimal.
func (id WorkerID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalText implements [encoding.TextMarshaler].
func (id WorkerID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (id *WorkerID) UnmarshalText(text []byte) error {
	n, err := parseID("worker id", text)
	*id = WorkerID(n)
	return err
}

func parseID(what string, text []byte) (int64, error) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n <= 0 {
		return 0, &Error{Code: CodeInvalid, Field: "id", Message: what + " must be a positive decimal number"}
	}
	return n, nil
}

package dashboard

// field is a field of a form with its value.
type field struct{ Name, Value string }

// input is an optional field that the operator fills in on a confirmation.
type input struct {
	Name, Label, Placeholder string
	Numeric                  bool
}

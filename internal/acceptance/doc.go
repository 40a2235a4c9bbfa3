// Package acceptance tests Posthaste's guarantees end to end. Each scenario is a test named by
// its id, on a real PostgreSQL, with the shipped client, runtime, sink and server, and with
// real processes if some are killed.
//
// The evidence is what receivers recorded themselves (package history), never the state of the
// store.
//
// If the full numbers of a scenario take minutes, a smaller one of the same shape runs unless
// the environment variable POSTHASTE_TEST_FULL is 1.
package acceptance

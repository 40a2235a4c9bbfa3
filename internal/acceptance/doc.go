// Package acceptance holds what must hold for Posthaste to do its job, each
// scenario as a test that is named by its id: on a real PostgreSQL, with the
// client, runtime, sink and server that are shipped, and with real processes
// where some are killed.
//
// What counts is what receivers recorded themselves (package history), never
// what the store says of it.
//
// Where the full numbers of a scenario take minutes, a smaller one of the same
// shape is run unless the environment variable POSTHASTE_TEST_FULL is 1.
package acceptance

// Package prove shows on the reader's own machine that no message is lost: it runs senders and
// workers as processes of their own, kills them and their database with SIGKILL, and accounts
// for every message.
//
// The account does not use the queue. Each process appends its own observations to
// its own file (package history) and syncs the file before it goes on: a sender before it
// sends and after the answer, a worker before it acknowledges. [Check] reads only these files.
//
// It is the small sibling of internal/chaos, which breaks much more and needs the tools of the
// tests. The shipped program contains this package, so it links no server and no test rig.
package prove

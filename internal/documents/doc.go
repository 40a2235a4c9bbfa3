// Package documents holds the tests of what the documents say: commands and
// statements that they show are run, and lists that they give are compared
// with the code.
//
// A fenced block of commands, SQL or Go in README.md or docs/ bears a mark, as
// an HTML comment on the line above it:
//
//	run: up                          starts everything, on free ports
//	run: after up                    a shell command, with those ports in it
//	run: after up, until it shows    the same, repeated until it shows what follows
//	run: psql                        statements for psql
//	quote: FILE                      the block is that file
//	run by: FILE                     the file's commands are these
//	not run: REASON
//
// What a block must show follows it in one marked "shows": each line occurs in
// the output. Blocks of a document run in the order in which they stand.
package documents

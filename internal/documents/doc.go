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
//	run: after up, at night          a shell command that runs at night only
//	run: up, with a broker           these three run at night, with a RabbitMQ in
//	run: after up, with a broker     place of the one on this machine
//	run: after up, with a broker, until it shows
//	run: psql                        statements for psql
//	run: on a database               a shell command, with DATABASE_URL
//	quote: FILE                      the block is that file
//	quote: FILE, saved as NAME       the same; the reader saves it under that name
//	run by: FILE                     the file's commands are these
//	not run: REASON
//
// What a block must show follows it in one marked "shows": each line occurs in
// the output. Blocks of a document run in the order in which they stand, as in one
// terminal: a later block has the folder and the variables of an earlier one.
package documents

// Package cpumeter tells how much CPU time a server process and its children have
// used. Benchmarks divide it by the number of messages. Only Linux has what it reads;
// elsewhere every meter knows nothing.
package cpumeter

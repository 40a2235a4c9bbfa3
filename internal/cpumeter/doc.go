// Package cpumeter measures the CPU time of a server process and its children. Benchmarks
// divide it by the number of messages. It works only on Linux; on other systems every meter
// returns no value.
package cpumeter

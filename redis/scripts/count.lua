#!lua flags=no-writes
-- Counts the messages of a subscription.
-- keys: of the subscription
-- args: number of the subscription; rules
-- returns: "gone", or a list: waiting; in flight; dead; since when the queue is paused or "";
--       sent; done; retried; lost; withdrawn; µs since the oldest available message was sent
--       or fell due, or "-1"; the time; the first 100 paused keys; expired; the first 100 kinds
--       of messages that were set aside, three values each: kind, number, µs since the first
--       of them was
-- cost: some twenty commands, and three per kind of messages that were set aside
local number, rules = unpack(ARGV)
-- includes: keys, rules, current, keyed, handled, counted
return counted()

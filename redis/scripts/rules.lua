-- The rules of a queue: n max_attempts, b base and m maximum of the backoff in µs, k number
-- of settled messages to keep without retention, r retention in µs, p retain_payload; a
-- max_age in µs, nil if it has none; y the queue looks at keys, o it is ordered, x a dead
-- message stops its key, f its keys take turns; h the letter of a further subscription
-- (holders.lua); w the revision of the queue's options, nil if they were never changed; z a dead
-- message stopped its key under earlier options; v the version of the queue's subscriptions that the caller knows, nil if it
-- has no further ones; i the n, b and m of kinds, nil if no kind has any;
-- q the paused kinds, nil if there are none.
local rules = unpacked(rules)

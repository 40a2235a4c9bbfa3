-- The rules of a queue: n max_attempts, b backoff's base, m its bound, k how many
-- settled messages are kept, r retention, p retain payload; y it looks at keys, o it is
-- ordered, x a dead message stops its key, f its keys take turns. Of a further
-- subscription h is its letter (holders.lua); v is the version of the queue's
-- subscriptions that the caller knows, nil if there are no further ones.
local rules = unpacked(ARGV[2])

-- compatible
-- The place in the order is mostly the id of the transaction that sent, so that what a
-- late one put into the log is found by entries_ordered. Only what it sent later in
-- its life, or beside others that ended, needs an index of its own, which most
-- messages are not in.
drop index posthaste.entries_ordered_xid;
create index entries_ordered_late on posthaste.entries (queue_id, lane, xid, ord, pos) where ord is not null and due_at is null and ord <> xid;

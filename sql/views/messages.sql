-- posthaste.messages: every message whose first entry is in the log, parked messages, and those
-- of the history; one row for each subscription, in no order. Query a few: by message_id, or with
-- limit alone. A condition on reference, terms or key reads the whole log:
-- posthaste.list_messages finds those by an index. state, due_at and attempts are computed for
-- each returned row, so a condition on state reads everything: posthaste.list_messages pages
-- through that, newest first. The content of erased messages is left out.
create or replace view posthaste.messages as
select m.message_id, q.name as queue, s.name as subscription,
       (posthaste.message_state(m.message_id, s.number, m.at, false)).state, (posthaste.message_state(m.message_id, s.number, m.at, false)).due_at,
       m.key, m.kind, posthaste.all_headers(m.headers, null) as headers, m.reference, m.terms, coalesce(m.content_type, 'application/json') as content_type, m.payload, m.created_at,
       (posthaste.message_state(m.message_id, s.number, m.at, true)).attempts, m.erased_at
  from (
    select e.pos as message_id, e.queue_id, null::smallint as subscription, e.xid, e.due_at, e.key, e.kind, e.headers, e.reference, e.terms, e.content_type,
           e.payload, e.created_at, null::timestamptz as erased_at, e.headers as sent_headers, false as kept, e.at_row as at
      from posthaste.entries e
     where e.message_id is null and not exists (select from posthaste.erased x where x.message_id = e.pos)
    union all
    select e.pos, e.queue_id, null, e.xid, e.due_at, null, e.kind, null, null, null, e.content_type, null, e.created_at, x.at, e.headers, false, e.at_row
      from posthaste.erased x join posthaste.entries e on ((e.pos >> 22) & 15) = (x.message_id >> 22) & 15 and e.pos = x.message_id and e.message_id is null
    union all
    -- Rows that are copied and not truncated yet are returned above.
    select h.message_id, h.queue_id, h.subscription, null, null, h.key, h.kind, h.headers, h.reference, h.terms, h.content_type, h.payload, h.created_at, h.erased_at, null, true, null
      from posthaste.history h
     where h.expires_at > clock_timestamp() and not exists (select from posthaste.slots s where s.live and s.epoch = h.message_id >> 22)
    union all
    select p.message_id, (p.subscriber >> 10)::int, (p.subscriber & 1023)::smallint, null, null, nullif(p.key, ''), p.kind, p.headers, p.reference, p.terms, p.content_type,
           p.payload, p.created_at, null, null, true, null
      from posthaste.parked p
     where not exists (select from posthaste.slots s where s.live and s.epoch = p.message_id >> 22)
  ) m
  join posthaste.queue_settings q on q.id = m.queue_id and q.dropped_at is null
  join posthaste.subscriptions s on s.queue_id = q.id and s.dropped_at is null and (m.subscription is null or m.subscription = s.number)
 where m.kept or posthaste.is_for(s, null, m.xid, m.due_at, m.kind, m.sent_headers);

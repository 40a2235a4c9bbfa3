-- posthaste.copy_begin: begins sending many messages to one queue by COPY, which
-- must follow in the same transaction: COPY posthaste.entries (pos, queue_id,
-- lane, due_at, content_type, key, kind, reference, headers, terms, trace, payload).
-- Of a queue that looks at keys the rows have the column ord, too, which admins
-- may write and senders may not: who could write the place in the order of
-- others' messages could hide them. Senders use posthaste.send_rows there.
-- Arguments: queue, how many messages (1 to 100,000), the longest payload's
-- bytes, whether to ring, the highest priority among them; the messages' keys
-- (null: none has one that matters, or the caller may not write ord; null
-- elements: no key). The client checks the other limits, and sends what has a due time or a
-- priority without keys.
-- Returns: what to write into each row: queue_id, the lane (its priority × step,
-- and any number below lanes), and as many positions. If ord is not null: this
-- too, and of each row the lane of key_lanes. No lanes: this queue looks at
-- keys, and these messages must be sent by posthaste.send_rows. Errors: PH404,
-- PH413, PH400.
-- Locks: the queue's key, shared; the entries, as those who insert do. Advances: positions. Updates: queue_settings,
-- where a priority is used first.
create or replace function posthaste.copy_begin(p_queue text, p_count int, p_longest int, p_wake boolean, p_priority int default 0, p_keys text[] default null,
  out queue_id int, out lanes int, out positions bigint[], out step int, out ord xid8, out key_lanes smallint[])
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  q posthaste.queue_settings;
begin
  if p_count is null or p_count not between 1 and 100000 then
    raise exception using errcode = 'PH400', column = 'count', message = 'count must be 1 to 100000';
  end if;
  perform pg_advisory_xact_lock_shared(posthaste.lock_key(7, hashtext(p_queue)));
  select * into q from posthaste.queue_settings x where x.name = p_queue and x.dropped_at is null;
  if q.id is null then
    raise exception using errcode = 'PH404', column = 'queue', message = format('queue %L does not exist', p_queue),
      hint = format('create it: select posthaste.create_queue(%L)', p_queue);
  end if;
  if p_longest > q.max_payload then
    raise exception using errcode = 'PH413', column = 'payload',
      message = format('payload of %s bytes is over the queue''s limit of %s (max_payload)', p_longest, q.max_payload);
  end if;
  if p_keys is not null and (cardinality(p_keys) <> p_count or array_lower(p_keys, 1) is distinct from 1) then
    raise exception using errcode = 'PH400', column = 'keys', message = format('there must be as many keys as messages: %s of %s', cardinality(p_keys), p_count);
  end if;
  -- By the function that takes arrays, which also says what is wrong with a
  -- message without a key.
  if q.keyed and (p_keys is null or q.ordered and (array_position(p_keys, null) is not null or array_position(p_keys, '') is not null)) then
    lanes := 0;
    positions := '{}';
    return;
  end if;
  if p_wake then
    perform posthaste.ring(q.id);
  end if;
  -- As COPY will: posthaste.rebase waits for whoever has positions of the old log.
  lock table only posthaste.entries in row exclusive mode;
  -- A transaction id first: a position may only be taken by a transaction that
  -- reclaiming can see.
  if q.keyed then
    -- The place in the order with the positions: rows may come as late as they want.
    ord := posthaste.ord_now();
    key_lanes := array(select posthaste.key_lane(nullif(x.key, ''), q.width) from unnest(p_keys) with ordinality x (key, n) order by x.n);
  else
    perform pg_current_xact_id();
  end if;
  queue_id := q.id;
  lanes := q.width;
  step := case when q.lanes > q.width or coalesce(p_priority, 0) > 0 and posthaste.part_lanes(q.id) then q.width else 0 end;
  positions := array(select nextval('posthaste.positions') from generate_series(1, p_count));
end $$;

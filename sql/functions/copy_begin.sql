-- posthaste.copy_begin: begins sending many messages to one queue by COPY, which
-- must follow in the same transaction: COPY posthaste.entries (pos, queue_id,
-- lane, due_at, content_type, key, kind, reference, headers, terms, trace, payload).
-- Arguments: queue, how many messages (1 to 100,000), the longest payload's
-- bytes, whether to ring. The client checks the other limits.
-- Returns: what to write into each row: queue_id, lanes (any lane below it), and
-- as many positions. Errors: PH404, PH413, PH400.
-- Locks: the queue's key, shared. Advances: positions.
create or replace function posthaste.copy_begin(p_queue text, p_count int, p_longest int, p_wake boolean,
  out queue_id int, out lanes int, out positions bigint[])
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
  if p_wake then
    perform posthaste.ring(q.id);
  end if;
  -- A transaction id first: a position may only be taken by a transaction that
  -- reclaiming can see.
  perform pg_current_xact_id();
  queue_id := q.id;
  lanes := q.lanes;
  positions := array(select nextval('posthaste.positions') from generate_series(1, p_count));
end $$;

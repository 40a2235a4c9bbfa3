-- posthaste.dedupe: deduplicates sends. A message whose dedupe key is in use is not sent, and
-- gets the id of the message that uses the key, unless that one was withdrawn. Of several
-- messages with one key in a call only the first is sent.
-- Arguments: parallel arrays: the queues' ids, the keys and their windows, as of
-- posthaste.insert_entries, which inserts the messages; the time.
-- Returns: ids, in order: for a new message a position that was taken for it; fresh, the
-- numbers of the new messages.
-- Locks: the rows of new keys, in ascending order. It waits for a transaction that is using
-- one of them and continues with its result: its message, or no message if it rolled back. In
-- REPEATABLE READ and SERIALIZABLE that is a serialization failure (40001), as with any row.
-- Inserts: dedupe_keys. Updates: dedupe_keys whose window is over, or whose message was
-- withdrawn.
create or replace function posthaste.dedupe(p_queues int[], p_dedupe_keys text[], p_dedupe_windows double precision[], p_now timestamptz,
  out ids bigint[], out fresh int[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_positions bigint[];
  v_id bigint;
  v_known boolean;
  v_used bigint[];
  v_free bigint[];
  k record;
begin
  ids := array_fill(null::bigint, array[cardinality(p_queues)]);
  fresh := '{}';
  -- For each message the id that uses its key, and the same again if that one was withdrawn,
  -- which is final. Before the lock: this reads tables that rebasing holds while it waits for
  -- the lock.
  v_used := array(select (select d.message_id from posthaste.dedupe_keys d
                           where d.queue_id = p_queues[n] and d.key = p_dedupe_keys[n] and p_dedupe_keys[n] <> '' and d.until - interval '0' > p_now limit 1)
                    from generate_series(1, cardinality(p_queues)) n);
  if array_remove(v_used, null) <> '{}' then
    v_free := array(select case when x.id in (select posthaste.taken_back(p_queues, v_used)) then x.id end from unnest(v_used) with ordinality x (id, n) order by x.n);
  end if;
  -- Before the positions, as in an insert: rebasing waits for transactions with positions by
  -- this lock alone, and here a transaction may wait for a key in between.
  lock table only posthaste.entries_plain, only posthaste.entries_other in row exclusive mode;
  -- The transaction's id comes before the positions: reclaiming relies on it.
  perform pg_current_xact_id();
  -- In the messages' order, which in a keyed queue is that of their keys.
  v_positions := array(select nextval('posthaste.positions') from generate_series(1, cardinality(p_queues)));
  -- Row by row and ascending: otherwise two batches with the same keys would deadlock.
  for k in
    select u.queue, u.key, min(u.n) as first, array_agg(u.n) as all_of_it
      from (select p_queues[n] as queue, p_dedupe_keys[n] as key, n from generate_series(1, cardinality(p_queues)) n) u
     where u.key <> '' group by u.queue, u.key order by u.queue, u.key
  loop
    v_known := false;
    loop
      -- Read first, because a conflict would lock the row of a key in use, and all its senders
      -- would wait for each other.
      select d.message_id into v_id from posthaste.dedupe_keys d where d.queue_id = k.queue and d.key = k.key and d.until - interval '0' > p_now; -- avoids the index on until, which contains all of them
      v_known := found;
      if v_known and v_id = v_free[k.first] then
        -- If several find that at once, one sends, and the others get its message.
        update posthaste.dedupe_keys d set message_id = v_positions[k.first], until = p_now + make_interval(secs => coalesce(p_dedupe_windows[k.first], 86400))
         where d.queue_id = k.queue and d.key = k.key and d.message_id = v_id
        returning d.message_id into v_id;
        v_known := false;
        exit when found;
        continue;
      end if;
      exit when v_known;
      insert into posthaste.dedupe_keys as d (queue_id, key, message_id, until)
      values (k.queue, k.key, v_positions[k.first], p_now + make_interval(secs => coalesce(p_dedupe_windows[k.first], 86400)))
      on conflict (queue_id, key) do update set message_id = excluded.message_id, until = excluded.until where d.until <= p_now
      returning d.message_id into v_id;
      exit when found;
    end loop;
    if not v_known then
      fresh := fresh || k.first;
    end if;
    for i in 1..cardinality(k.all_of_it) loop
      ids[k.all_of_it[i]] := v_id;
    end loop;
  end loop;
  for n in 1..cardinality(p_queues) loop
    if ids[n] is null then
      ids[n] := v_positions[n];
      fresh := fresh || n;
    end if;
  end loop;
end $$;

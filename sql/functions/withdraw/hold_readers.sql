-- posthaste.hold_readers: takes the locks under which waiting entries can be withdrawn: until the
-- transaction ends no session claims in their lanes.
-- Arguments: the entries. Errors: PH503.
-- Locks: the locks of their queues' withdrawals, shared, then the readers of their queues and
-- lanes, each ascending.
create or replace function posthaste.hold_readers(p_heads posthaste.head[])
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_queue int;
  v_reader bigint;
begin
  -- A subscription added meanwhile would not know which entries were appended again
  -- elsewhere, and would get both.
  for v_queue in select distinct (x).queue_id from unnest(p_heads) x order by 1 loop
    perform posthaste.lock_queue(v_queue, 'withdrawn', true);
  end loop;
  for v_reader in
    select posthaste.reader_key(s.queue_id, s.number, x.lane, g)
      from (select distinct (h).queue_id, (h).lane & 255 as lane from unnest(p_heads) h) x
      join posthaste.subscriptions s on s.queue_id = x.queue_id and s.dropped_at is null
     cross join generate_series(0, 1) g order by 1
  loop
    perform posthaste.lock_reader(v_reader, true);
  end loop;
end $$;

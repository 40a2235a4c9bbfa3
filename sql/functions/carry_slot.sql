-- posthaste.carry_slot: moves out of a slot what must outlive it: cursors of idle
-- readers are written anew, and entries due later are appended anew and cancelled
-- where they were, exactly, under the locks of the readers concerned. A reader
-- that is busy is left for the next round.
-- Arguments: slot. Returns: how many entries were carried.
-- Locks: readers, without waiting. Inserts: claims, entries, cancelled.
create or replace function posthaste.carry_slot(p_slot int)
returns int language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
declare
  l posthaste.live := posthaste.live_slots();
  v_after timestamptz := clock_timestamp() + (select carry_after from posthaste.settings);
  q record;
  u record;
  c posthaste.claims;
  v_reader bigint;
  v_free boolean;
  v_far boolean;
  v_reached timestamptz;
  v_rows int;
  v_carried int := 0;
begin
  for q in select x.id, x.lanes from posthaste.queue_settings x where x.dropped_at is null order by x.id loop
    for v_lane in 0..q.lanes - 1 loop
      -- Looked at first: only readers that something is carried for are locked.
      v_far := (select e.pos from posthaste.entries e
                 where e.queue_id = q.id and e.lane = v_lane and e.due_at is not null and e.due_at > v_after and ((e.pos >> 22) & 15) = p_slot
                   and not exists (select from posthaste.cancelled x where x.pos = e.pos)
                 order by e.due_at, e.pos limit 1) is not null;
      v_free := true;
      v_reached := v_after;
      for u in select x.number from posthaste.subscriptions x where x.queue_id = q.id and x.dropped_at is null order by x.number loop
        v_reader := posthaste.reader_key(q.id, u.number, v_lane, 0);
        c := posthaste.cursor_of(v_reader, l);
        if c.slot = p_slot and posthaste.lock_reader(v_reader, false) then
          c := posthaste.cursor_of(v_reader, l);
          if c.slot = p_slot then
            perform posthaste.put_claim(posthaste.without_places(c), null, null, null, false);
          end if;
        end if;
        c := posthaste.cursor_of(v_reader + 1, l);
        continue when not v_far and c.slot is distinct from p_slot;
        if posthaste.lock_reader(v_reader + 1, false) then
          c := posthaste.cursor_of(v_reader + 1, l);
          v_reached := greatest(v_reached, c.t1);
          if c.slot = p_slot then
            perform posthaste.put_claim(posthaste.without_places(c), null, null, null, false);
          end if;
        else
          v_free := false;
        end if;
      end loop;
      continue when not v_free or not v_far;
      -- Nobody can have been handed what is due after all cursors' times.
      with far as materialized (
        select e.* from posthaste.entries e
         where e.queue_id = q.id and e.lane = v_lane and e.due_at is not null and e.due_at > v_reached and ((e.pos >> 22) & 15) = p_slot
           and not exists (select from posthaste.cancelled x where x.pos = e.pos)
         -- Ordered, or the choice of the index would be left to chance.
         order by e.due_at, e.pos
         limit 10000
      ), withdrawn as (
        insert into posthaste.cancelled (pos, subscriber, outcome)
        select f.pos, q.id::bigint << 10 | x.number, 'carried'
          from far f join posthaste.subscriptions x on x.queue_id = q.id and x.dropped_at is null
           and (f.for_subscription is null or f.for_subscription = x.number)
      ), counted as (
        update posthaste.counters k set dropped = k.dropped + n.rows
          from (select f.for_subscription, count(*) as rows from far f where f.for_subscription is not null group by 1) n
         where k.queue_id = q.id and k.subscription = n.for_subscription
      )
      insert into posthaste.entries (ord, message_id, created_at, due_at, queue_id, lane, for_subscription, attempt, failures, losses, losses_alone,
                                     content_type, key, kind, reference, headers, terms, trace, story, payload)
      select f.ord, coalesce(f.message_id, f.pos), f.created_at, f.due_at, f.queue_id, f.lane, f.for_subscription, f.attempt, f.failures, f.losses, f.losses_alone,
             f.content_type, f.key, f.kind, f.reference, f.headers, f.terms, f.trace, f.story, f.payload
        from far f;
      get diagnostics v_rows = row_count;
      v_carried := v_carried + v_rows;
    end loop;
  end loop;
  return v_carried;
end $$;

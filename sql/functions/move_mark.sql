-- posthaste.move_mark: moves the mark of a worker's oldest open claim over
-- closed ones, at most 10,000 at a time, and never past a claim in flight: it
-- needs the worker's key exclusively, and does nothing where a claim holds it.
-- Returns: whether the worker has an open claim (null: not looked).
-- Locks: the worker's key, exclusive. Updates: registrations.
create or replace function posthaste.move_mark(p_worker bigint)
returns boolean language plpgsql volatile 
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
  l posthaste.live;
  c posthaste.claims;
  v_mark bigint;
  v_new bigint;
  v_seen int := 0;
  v_open boolean := false;
begin
  if not pg_try_advisory_xact_lock(posthaste.lock_key(5, p_worker)) then
    return null;
  end if;
  l := posthaste.live_slots();
  select oldest_open into v_mark from posthaste.registrations where id = p_worker;
  v_new := v_mark;
  -- Read row by row: behind an open claim there may be hours of closed ones.
  for c in select k.* from posthaste.claims k
            where k.holder = p_worker and k.number >= v_mark
              and posthaste.in_slots(k.slot, l.a, l.b, l.c, l.d, l.e, l.f)
            order by k.holder, k.number loop
    if posthaste.claim_open(c) then
      v_new := c.number;
      v_open := true;
      exit;
    end if;
    v_seen := v_seen + 1;
    -- Several claims can bear one number: one that is open keeps the mark.
    v_new := c.number + case when v_seen < 10000 then 1 else 0 end;
    exit when v_seen = 10000;
  end loop;
  if v_new > v_mark then
    update posthaste.registrations set oldest_open = v_new where id = p_worker;
  end if;
  return v_open;
end $$;

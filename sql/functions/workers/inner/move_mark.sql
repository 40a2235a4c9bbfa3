-- posthaste.move_mark: moves the mark of a worker's oldest open claim over closed ones, and
-- never past a claim in flight: it needs the worker's key exclusively, and does nothing if a
-- claim holds it. A few claims that stay open while more than a thousand later ones were closed
-- are moved to the stragglers, so that the mark can pass one stuck message.
-- In steps of 16,384 claims (or places settled by themselves) and 512 open ones.
-- Returns: whether the worker has open claims, or may have (null: not looked).
-- Locks: the worker's key, exclusive. Updates: registrations, stragglers.
create or replace function posthaste.move_mark(p_worker bigint)
returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set enable_memoize = off set jit = off as $$
declare
  l posthaste.live;
  v_claim record;
  v_mark bigint;
  v_new bigint;
  v_walked int := 0;
  v_full boolean := false;
  v_ids bigint[] := '{}';     -- the open claims, with their numbers and
  v_numbers bigint[] := '{}'; -- the rows walked up to each
  v_at int[] := '{}';
  v_behind int;
begin
  if not pg_try_advisory_xact_lock(posthaste.lock_key(5, p_worker)) then
    return null;
  end if;
  l := posthaste.live_slots();
  delete from posthaste.stragglers s
   where s.worker = p_worker
     and (select posthaste.claim_open(k) from posthaste.claims k where k.slot = (s.claim >> 22) & 15 and k.id = s.claim order by k.slot, k.id limit 1) is not true;
  select oldest_open into v_mark from posthaste.registrations where id = p_worker;
  v_new := v_mark;
  -- Read row by row: there may be hours of claims.
  for v_claim in select k.id, k.number, case when k.single then k.places else 1 end as cost,
                  k.places > 0
                  and (select u.dropped_at is null from posthaste.subscriptions u where u.queue_id = k.reader >> 20 and u.number = (k.reader >> 10) & 1023)
                  and case when k.single then (select count(*) from posthaste.settlements s where s.slot = k.slot and s.claim = k.id)
                           else coalesce((select bit_count(s.bits) from posthaste.settlements s
                                           where s.slot = k.slot and s.claim = k.id and s.part = 0
                                           order by s.slot, s.claim, s.part, s.number desc limit 1), 0) end < k.places as open
             from posthaste.claims k
            where k.holder = p_worker and k.number >= v_mark
              and posthaste.in_slots(k.slot, l.a, l.b, l.c, l.d, l.e, l.f)
            order by k.holder, k.number loop
    v_walked := v_walked + v_claim.cost;
    if v_claim.open then
      v_ids := v_ids || v_claim.id::bigint;
      v_numbers := v_numbers || v_claim.number::bigint;
      v_at := v_at || v_walked;
    end if;
    v_new := v_claim.number;
    v_full := v_walked >= 16384 or cardinality(v_ids) = 512;
    exit when v_full;
  end loop;
  -- Several claims can have the same number, so the last one walked stays unless it is the
  -- last of all.
  if not v_full and v_walked > 0 then
    v_new := v_new + 1;
  end if;
  -- Open claims with a thousand or more behind them become stragglers if they are few. If many
  -- are open, as many have to be looked at anyway.
  select count(*) into v_behind from unnest(v_at) a where a <= v_walked - 1024;
  if v_behind * 8 > v_walked - 1024 then
    v_behind := 0;
  end if;
  v_new := least(v_new, v_numbers[v_behind + 1]);
  insert into posthaste.stragglers (worker, claim)
  select p_worker, v_ids[i] from generate_series(1, v_behind) i where v_numbers[i] < v_new;
  if v_new > v_mark then
    update posthaste.registrations set oldest_open = v_new where id = p_worker;
  end if;
  return v_full or cardinality(v_ids) > 0 or exists (select from posthaste.stragglers s where s.worker = p_worker);
end $$;

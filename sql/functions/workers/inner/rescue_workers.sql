-- posthaste.rescue_workers: declares overdue workers lost, and rescues one claim of a lost
-- worker.
-- Returns: the number of lost deliveries, 0 if there is nothing left to do now.
-- A claim of which another session is settling a part is stored in held_claims and tried again
-- at most once a second; a call stops after half a second of such tries.
-- Locks: the worker's key, exclusive, if one is declared lost; one claim.
-- Updates: registrations, stragglers, held_claims.
create or replace function posthaste.rescue_workers()
returns int language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_worker posthaste.registrations;
  v_claim record;
  v_lost int;
  v_all boolean;
  v_open boolean;
  v_stop timestamptz := clock_timestamp() + interval '500 milliseconds';
begin
  for v_worker in select * from posthaste.registrations x where posthaste.worker_overdue(x) order by x.id loop
    -- A claim in flight holds the key: look again later.
    if pg_try_advisory_xact_lock(posthaste.lock_key(5, v_worker.id)) then
      update posthaste.registrations x set lost_at = clock_timestamp() where x.id = v_worker.id and posthaste.worker_overdue(x);
    end if;
  end loop;
  for v_worker in select * from posthaste.registrations x where (x.lost_at is not null or x.ended_at is not null) and not x.cleared order by x.id loop
    -- One rescuer per worker.
    continue when not pg_try_advisory_xact_lock(posthaste.lock_key(9, v_worker.id));
    -- First, so that the next call does not walk over the same closed ones.
    v_open := posthaste.move_mark(v_worker.id);
    v_all := true;
    -- Claims that were not held yet come first: otherwise the same held ones would take all
    -- the time.
    for v_claim in
      select o.id, o.reader, h.next_try from posthaste.open_claims(v_worker.id) o
        left join posthaste.held_claims h on h.subscriber = o.reader >> 10 and h.claim = o.id
       order by h.next_try nulls first, o.id
    loop
      if v_claim.next_try > clock_timestamp() then
        v_all := false;
        exit;
      end if;
      v_lost := posthaste.rescue_claim(v_claim.id);
      if v_lost > 0 then
        return v_lost;
      elsif v_lost < 0 then
        v_all := false;
        insert into posthaste.held_claims as h (subscriber, claim, next_try) values (v_claim.reader >> 10, v_claim.id, clock_timestamp() + interval '1 second')
        on conflict (subscriber, claim) do update set next_try = case when h.tries > 10 then excluded.next_try + interval '1 hour' else excluded.next_try end;
        exit when clock_timestamp() > v_stop;
      end if;
    end loop;
    exit when clock_timestamp() > v_stop;
    if v_all and not v_open then
      update posthaste.registrations x set cleared = true where x.id = v_worker.id;
    end if;
  end loop;
  -- Kept for a while, for display.
  delete from posthaste.registrations x where x.cleared and greatest(x.lost_at, x.ended_at) < clock_timestamp() - interval '1 day';
  return 0;
end $$;

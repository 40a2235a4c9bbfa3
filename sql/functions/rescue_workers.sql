-- posthaste.rescue_workers: declares overdue workers lost, and rescues one claim
-- of a worker that is gone.
-- Returns: how many deliveries were lost, 0 if there is nothing left to do now.
-- Locks: the worker's key, exclusive, where one is declared lost; one claim.
-- Updates: registrations, stragglers.
create or replace function posthaste.rescue_workers()
returns int language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  w posthaste.registrations;
  c posthaste.claims;
  v_lost int;
  v_all boolean;
  v_open boolean;
begin
  for w in select * from posthaste.registrations x where posthaste.worker_overdue(x) order by x.id loop
    -- A claim in flight holds the key: then look again later.
    if pg_try_advisory_xact_lock(posthaste.lock_key(5, w.id)) then
      update posthaste.registrations x set lost_at = clock_timestamp() where x.id = w.id and posthaste.worker_overdue(x);
    end if;
  end loop;
  for w in select * from posthaste.registrations x where (x.lost_at is not null or x.ended_at is not null) and not x.cleared order by x.id loop
    -- One rescuer a worker.
    continue when not pg_try_advisory_xact_lock(posthaste.lock_key(9, w.id));
    -- First, so that the next call does not walk over the same closed ones.
    v_open := posthaste.move_mark(w.id);
    v_all := true;
    for c in select * from posthaste.open_claims(w.id) loop
      v_lost := posthaste.rescue_claim(c.id);
      if v_lost > 0 then
        return v_lost;
      end if;
      v_all := v_all and v_lost = 0;
    end loop;
    if v_all and not v_open then
      update posthaste.registrations x set cleared = true where x.id = w.id;
    end if;
  end loop;
  -- Kept for a while, for people who look.
  delete from posthaste.registrations x where x.cleared and greatest(x.lost_at, x.ended_at) < clock_timestamp() - interval '1 day';
  return 0;
end $$;

-- posthaste.worker_heartbeat: keeps a worker alive. It does nothing else, so that it never
-- waits for a look: posthaste.worker_look follows in a transaction of its own.
-- Arguments: worker. Errors: PH410 if the worker was declared lost.
-- Updates: registrations.
create or replace function posthaste.worker_heartbeat(p_worker bigint)
returns void language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  update posthaste.registrations w set heartbeat_at = clock_timestamp()
   where w.id = p_worker and w.lost_at is null and w.ended_at is null;
  if not found then
    raise exception using errcode = 'PH410', message = format('worker %s is not registered any more', p_worker),
      hint = 'register again; other workers get the messages that it held';
  end if;
end $$;

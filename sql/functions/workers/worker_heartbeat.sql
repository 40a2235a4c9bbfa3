-- posthaste.worker_heartbeat: keeps a worker alive. It does nothing else, so that it never
-- waits for a look: posthaste.worker_look follows in a transaction of its own.
-- Arguments: worker; load, the state of the worker for operators, or null.
-- Returns: the worker's deliveries whose messages were cancelled while they ran, until upkeep has
-- found that they ended; null if there are none.
-- Errors: PH410 if the worker was declared lost.
-- Updates: registrations. Reads: cancel_requests.
create or replace function posthaste.worker_heartbeat(p_worker bigint, p_load jsonb default null)
returns bigint[] language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_cancelled bigint[];
begin
  update posthaste.registrations w set heartbeat_at = clock_timestamp(), load = p_load
   where w.id = p_worker and w.lost_at is null and w.ended_at is null
  returning (select array_agg(x.delivery) from posthaste.cancel_requests x where x.worker = p_worker) into v_cancelled;
  if not found then
    raise exception using errcode = 'PH410', message = format('worker %s is not registered any more', p_worker),
      hint = 'register again; other workers get the messages that it held';
  end if;
  return v_cancelled;
end $$;

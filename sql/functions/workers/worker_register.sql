-- posthaste.worker_register: registers a worker.
-- Arguments: a name for display, the program's version, the lease without a heartbeat; the
-- environment, empty or null if unknown (posthaste.not_here); the kinds that it handles in the
-- subscriptions in which it does not handle all, as {"queue": {"subscription": ["kind"]}}; the
-- subscriptions that it delivers to external systems, as [{"queue", "subscription", "destination"}].
-- Returns: its id. Errors: PH400, PH503. Inserts: registrations.
create or replace function posthaste.worker_register(p_name text, p_version text, p_lease interval, p_environment text default null, p_kinds jsonb default null, p_sinks jsonb default null)
returns bigint language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_id bigint;
begin
  if p_lease is null or p_lease < '100 milliseconds' or p_lease > '1 hour' then
    raise exception using errcode = 'PH400', column = 'lease', message = format('a worker''s lease must be 100 ms to 1 h, got %s', p_lease);
  end if;
  perform posthaste.check_identity(left(coalesce(p_environment, ''), 255));
  insert into posthaste.registrations (name, version, lease, environment, kinds, sinks)
  values (left(p_name, 255), left(p_version, 64), p_lease, left(coalesce(p_environment, ''), 255), p_kinds, p_sinks)
  returning id into v_id;
  return v_id;
end $$;

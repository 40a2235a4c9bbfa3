-- posthaste.rescue: redelivers the unsettled messages of one lost worker or ended lease: one
-- claim per transaction, so call it until it returns 0.
-- Returns: the number of lost deliveries. Errors: PH503 in a copy.
create or replace function posthaste.rescue()
returns int language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 as $$
declare
  v_lost int;
  v_subscriber bigint;
begin
  if coalesce(current_setting('posthaste.identity_checked', true), '') <> 'yes' then
    perform posthaste.check_identity();
  end if;
  v_lost := posthaste.rescue_workers();
  if v_lost > 0 then
    return v_lost;
  end if;
  for v_subscriber in
    select s.queue_id::bigint << 10 | s.number from posthaste.subscriptions s join posthaste.queue_settings q on q.id = s.queue_id
     where q.dropped_at is null and s.dropped_at is null order by 1
  loop
    v_lost := posthaste.rescue_leases(v_subscriber);
    if v_lost > 0 then
      return v_lost;
    end if;
  end loop;
  return 0;
end $$;

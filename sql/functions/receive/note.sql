-- posthaste.note: records what handlers noted, in the order of deliveries.
-- Arguments: parallel arrays of deliveries, which may repeat, and of the notes for each:
-- checkpoint, progress, its text, log lines, null for none; a lease to extend received
-- deliveries by, or null.
-- Returns: per note its ordinality, whether it was recorded: the delivery is the caller's; and
-- whether the message was cancelled meanwhile. The notes of such a delivery are recorded like
-- others, because it may still end as done.
-- Errors: PH400. Locks: as posthaste.extend with a lease. Inserts: notes, leases. Reads:
-- cancel_requests.
create or replace function posthaste.note(p_deliveries bigint[], p_checkpoints jsonb[], p_progress real[], p_texts text[], p_logs text[], p_lease interval default null)
returns table (n int, recorded boolean, cancelled boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_any boolean := exists (select from posthaste.cancel_requests);
begin
  if p_lease is not null then
    perform posthaste.extend(p_deliveries, p_lease);
  end if;
  -- Ascending, as all that settles: otherwise two callers would deadlock.
  for n in select u.n from unnest(p_deliveries) with ordinality u (id, n) order by u.id, u.n loop
    recorded := posthaste.put_note(p_deliveries[n], p_checkpoints[n], p_progress[n], p_texts[n], p_logs[n]);
    cancelled := recorded and v_any and exists (select from posthaste.cancel_requests x where x.delivery = p_deliveries[n]);
    return next;
  end loop;
end $$;

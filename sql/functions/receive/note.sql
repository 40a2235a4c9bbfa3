-- posthaste.note: records what handlers noted, in the order of deliveries.
-- Arguments: parallel arrays of deliveries, which may repeat, and of the notes for each:
-- checkpoint, progress, its text, log lines, null for none; a lease to extend received
-- deliveries by, or null.
-- Returns: per note its ordinality, whether it was recorded: the delivery is the caller's; and
-- whether the message was cancelled meanwhile. The notes of such a delivery are recorded like
-- others, because it may still end as done. recorded is null if an open transaction that noted the
-- delivery, or ends it, would have to be waited for: for at most 500 ms, and 10 ms for each other.
-- Errors: PH400. Locks: as posthaste.extend with a lease. Inserts: notes, leases. Reads:
-- cancel_requests.
create or replace function posthaste.note(p_deliveries bigint[], p_checkpoints jsonb[], p_progress real[], p_texts text[], p_logs text[], p_lease interval default null)
returns table (n int, recorded boolean, cancelled boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_any boolean := exists (select from posthaste.cancel_requests);
  v_recorded boolean[];
  v_timeout constant text := current_setting('lock_timeout');
  -- Ascending, as all that settles: otherwise two callers would deadlock.
  v_order int[];
begin
  if p_lease is not null then
    perform posthaste.extend(p_deliveries, p_lease);
  end if;
  v_order := array(select u.n from unnest(p_deliveries) with ordinality u (id, n) order by u.id, u.n);
  -- In one subtransaction unless one is held. Its lock_timeout ends with it only if it fails.
  begin
    perform set_config('lock_timeout', '500ms', true);
    foreach n in array v_order loop
      v_recorded[n] := posthaste.put_note(p_deliveries[n], p_checkpoints[n], p_progress[n], p_texts[n], p_logs[n]);
    end loop;
  exception when lock_not_available then
    v_recorded := '{}';
    perform set_config('lock_timeout', '10ms', true);
    foreach n in array v_order loop
      begin
        v_recorded[n] := posthaste.put_note(p_deliveries[n], p_checkpoints[n], p_progress[n], p_texts[n], p_logs[n]);
      exception when lock_not_available then
        v_recorded[n] := null;
      end;
    end loop;
  end;
  perform set_config('lock_timeout', v_timeout, true);
  foreach n in array v_order loop
    recorded := v_recorded[n];
    cancelled := coalesce(recorded, false) and v_any and exists (select from posthaste.cancel_requests x where x.delivery = p_deliveries[n]);
    return next;
  end loop;
end $$;

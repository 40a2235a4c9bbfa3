-- posthaste.set_pause: notes that something is paused, why and until when, and records that. The
-- caller holds the lock of the paused thing.
-- Arguments: queue, key, kind or schedule; the queue, 0 of a schedule; the key, kind or schedule, ''
--   of a queue; the actor to record; reason: one line of at most 500 characters, or null; until: when
--   the pause ends by itself (posthaste.tick), in the future and at most 36500 days ahead, or null.
-- Returns: whether it was not paused, or had another reason or end. Errors: PH400, PH413 with the
-- field. Inserts, updates: pauses. Inserts: action_records, if it changes anything.
create or replace function posthaste.set_pause(p_what text, p_queue int, p_name text, p_by text, p_reason text, p_until timestamptz)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_by text := coalesce(p_by, session_user);
  v_reason text := nullif(p_reason, '');
begin
  if length(v_reason) > 500 then
    raise exception using errcode = 'PH413', column = 'reason', message = format('reason has %s characters, at most 500 are allowed', length(v_reason));
  elsif v_reason ~ '[\u0001-\u001F\u007F-\u009F\u2028\u2029]' then
    raise exception using errcode = 'PH400', column = 'reason', message = 'reason must be one line without control characters';
  elsif p_until <= clock_timestamp() then
    raise exception using errcode = 'PH400', column = 'until',
      message = format('until is %s, which has passed: the end of a pause must be in the future', p_until);
  elsif p_until > clock_timestamp() + interval '36500 days' then
    raise exception using errcode = 'PH400', column = 'until',
      message = format('until is %s: the end of a pause must be at most 36500 days ahead; a pause without an end lasts until it is resumed', p_until);
  end if;
  insert into posthaste.pauses as p (what, queue_id, name, by, reason, until) values (p_what, p_queue, p_name, v_by, v_reason, p_until)
  on conflict (queue_id, what, name) do update
     set id = default, by = excluded.by, reason = excluded.reason, until = excluded.until
   where (p.reason, p.until) is distinct from (excluded.reason, excluded.until);
  if not found then
    return false;
  end if;
  insert into posthaste.action_records (by, action, queue_id, details)
  values (v_by, case p_what when 'queue' then 'pause' when 'schedule' then 'schedule_pause' else 'pause_' || p_what end, nullif(p_queue, 0),
          nullif(jsonb_strip_nulls(jsonb_build_object(p_what, nullif(p_name, ''), 'reason', v_reason,
            'until', to_char(p_until at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))), '{}'));
  return true;
end $$;

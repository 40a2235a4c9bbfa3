-- posthaste.no_dead_letter: raises an error if none of the ids is a dead letter to act on, and
-- says for the first ones by which action and actor they were replayed, discarded or erased.
-- Arguments: ids; an empty array is no error.
-- Errors: PH404 with the field message_ids. Reads: action_records.
create or replace function posthaste.no_dead_letter(p_ids bigint[])
returns void language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_ids bigint[] := array(select distinct i from unnest(p_ids) i order by i);
  n int := cardinality(v_ids);
  v_told text;
begin
  if n = 0 then
    return;
  end if;
  select string_agg(i || case when k.action is null then '' else format(' (%s by %s at %s)', case k.action when 'replay' then 'replayed' when 'discard' then 'discarded' else 'erased' end, left(k.by, 80), to_char(k.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) end, ', ' order by i)
    into v_told
    from unnest(v_ids[1:5]) i
    left join lateral (
      select r.action, r.by, r.at from posthaste.action_records r
       where r.message_id = i and r.action in ('replay', 'discard', 'erase') order by r.id + 0 desc limit 1) k on true;
  raise exception using errcode = 'PH404', column = 'message_ids',
    message = format('no dead letter to act on: message%s %s%s', case when n > 1 then 's' end, v_told, case when n > 5 then format(' and %s more', n - 5) end),
    hint = 'posthaste.list_dead_letters lists them; nothing was changed';
end $$;

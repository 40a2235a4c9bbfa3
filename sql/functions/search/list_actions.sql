-- posthaste.list_actions: the recorded actions of operators, newest first.
-- Arguments, null for any: in_queue; of_message; before: only records with ids
-- below it, for paging; max: 1 to 1000.
-- Errors: PH400, PH404 with the field. Reads: action_records.
create or replace function posthaste.list_actions(in_queue text default null, of_message bigint default null, before bigint default null, max int default 100)
returns table (id bigint, at timestamptz, by text, action text, queue text, message_id bigint, details jsonb)
language plpgsql stable security definer rows 100
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
  v_before bigint := coalesce(list_actions.before, 9223372036854775807);
  v_max int := list_actions.max;
  v_queue int;
begin
  if v_max is null or v_max not between 1 and 1000 then
    raise exception using errcode = 'PH400', column = 'limit', message = format('a call lists 1 to 1000 actions, not %s', v_max);
  end if;
  if list_actions.in_queue is not null then
    v_queue := posthaste.find_queue(list_actions.in_queue);
  end if;
  if list_actions.of_message is not null then
    return query
      select a.id, a.at, a.by, a.action, a.queue, a.message_id, a.details from posthaste.actions a
       where a.message_id = list_actions.of_message and a.id < v_before and (v_queue is null or a.queue_id = v_queue)
       order by a.id desc limit v_max;
  elsif v_queue is not null then
    return query
      select a.id, a.at, a.by, a.action, a.queue, a.message_id, a.details from posthaste.actions a
       where (a.queue_id, a.id) < (v_queue, v_before) and (a.queue_id, a.id) > (v_queue, 0)
       order by a.queue_id desc, a.id desc limit v_max;
  else
    return query
      select a.id, a.at, a.by, a.action, a.queue, a.message_id, a.details from posthaste.actions a
       where a.id < v_before order by a.id desc limit v_max;
  end if;
end $$;

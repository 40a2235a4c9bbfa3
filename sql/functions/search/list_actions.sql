-- posthaste.list_actions: the recorded actions of operators, newest first.
-- Arguments, null for any: in_queue, including dropped queues of that name; of_message; before: only records with ids
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
  v_queues int[];
begin
  if v_max is null or v_max not between 1 and 1000 then
    raise exception using errcode = 'PH400', column = 'limit', message = format('a call lists 1 to 1000 actions, not %s', v_max);
  end if;
  if list_actions.in_queue is not null then
    v_queues := array(select q.id from posthaste.queue_settings q where q.name = list_actions.in_queue);
    if cardinality(v_queues) = 0 then
      perform posthaste.find_queue(list_actions.in_queue); -- raises the error
    end if;
  end if;
  if list_actions.of_message is not null then
    return query
      select a.id, a.at, a.by, a.action, a.queue, a.message_id, a.details from posthaste.actions a
       where a.message_id = list_actions.of_message and a.id < v_before and (v_queues is null or a.queue_id = any (v_queues))
       order by a.id desc limit v_max;
  elsif v_queues is not null then
    return query
      select x.id, x.at, x.by, x.action, x.queue, x.message_id, x.details
        from unnest(v_queues) v (queue_id) cross join lateral (
          select a.id, a.at, a.by, a.action, a.queue, a.message_id, a.details from posthaste.actions a
           where (a.queue_id, a.id) < (v.queue_id, v_before) and (a.queue_id, a.id) > (v.queue_id, 0)
           order by a.queue_id desc, a.id desc limit v_max) x
       order by x.id desc limit v_max;
  else
    return query
      select a.id, a.at, a.by, a.action, a.queue, a.message_id, a.details from posthaste.actions a
       where a.id < v_before order by a.id desc limit v_max;
  end if;
end $$;

-- posthaste.list_actions: the recorded actions of operators, newest first.
-- Arguments, null for any: queue, including dropped queues of that name; message_id; before: only records with ids
-- below it, for paging; max: 1 to 1000.
-- Errors: PH400, PH404 with the field. Reads: action_records.
create or replace function posthaste.list_actions(queue text default null, message_id bigint default null, before bigint default null, max bigint default 100)
returns setof posthaste.action_listed
language plpgsql stable security definer rows 100
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
  v_before bigint := coalesce(list_actions.before, 9223372036854775807);
  v_max int := case when list_actions.max between 1 and 1000 then list_actions.max end;
  v_queues int[];
begin
  if v_max is null then
    raise exception using errcode = 'PH400', column = 'limit', message = format('a call lists 1 to 1000 actions, not %s', list_actions.max);
  end if;
  if list_actions.queue is not null then
    v_queues := array(select q.id from posthaste.queue_settings q where q.name = list_actions.queue);
    if cardinality(v_queues) = 0 then
      perform posthaste.find_queue(list_actions.queue); -- raises the error
    end if;
  end if;
  if list_actions.message_id is not null then
    return query
      select a.id, a.at, a.by, a.action, a.queue, a.message_id, a.details from posthaste.actions a
       where a.message_id = list_actions.message_id and a.id < v_before and (v_queues is null or a.queue_id = any (v_queues))
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

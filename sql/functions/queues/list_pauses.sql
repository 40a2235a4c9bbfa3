-- posthaste.list_pauses: lists all pauses, since when, by whom, why and until when. The last one first.
-- Arguments, null for any: queue: only the pauses of it, its keys and its kinds; before: only those
-- with ids below it, for paging; max: 1 to 1000.
-- Returns: id, which changes with the reason and the end; what: queue, key, kind or schedule; queue;
-- name of the key, kind or schedule; since; by; reason; until.
-- Errors: PH400, PH404 with the field. Reads: pauses, queue_settings.
create or replace function posthaste.list_pauses(queue text default null, before bigint default null, max bigint default 100)
returns setof posthaste.pause_listed
language plpgsql stable security definer rows 100 set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_queue int;
begin
  if (list_pauses.max between 1 and 1000) is not true then
    raise exception using errcode = 'PH400', column = 'limit', message = format('a call lists 1 to 1000 pauses, not %s', list_pauses.max);
  end if;
  if list_pauses.queue is not null then
    v_queue := posthaste.find_queue(list_pauses.queue);
  end if;
  return query
    select p.id, p.what, q.name, nullif(p.name, ''), p.since, p.by, p.reason, p.until
      from posthaste.pauses p left join posthaste.queue_settings q on q.id = p.queue_id
     where (v_queue is null or p.queue_id = v_queue) and (list_pauses.before is null or p.id < list_pauses.before)
     order by p.id desc limit list_pauses.max;
end $$;

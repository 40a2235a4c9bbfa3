-- posthaste.find_queue: the id of a queue. Errors: PH404 with the field queue.
-- Reads: queue_settings.
create or replace function posthaste.find_queue(p_queue text)
returns int language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_id int := (select q.id from posthaste.queue_settings q where q.name = p_queue and q.dropped_at is null);
begin
  if v_id is null then
    raise exception using errcode = 'PH404', column = 'queue', message = format('queue %L does not exist', p_queue),
      hint = format('create it: select posthaste.create_queue(%L)', p_queue);
  end if;
  return v_id;
end $$;

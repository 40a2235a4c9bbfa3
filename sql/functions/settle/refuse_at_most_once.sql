-- posthaste.refuse_at_most_once: raises an error for deliveries of an at-most-once queue, which
-- cannot be settled. Errors: PH409. Reads: queue_settings.
create or replace function posthaste.refuse_at_most_once(p_queue int)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_name text := (select q.name from posthaste.queue_settings q where q.id = p_queue and q.mode = 'at_most_once');
begin
  if v_name is not null then
    raise exception using errcode = 'PH409', column = 'mode',
      message = format('queue %L is an at-most-once queue: its deliveries are settled as soon as they are handed out', v_name),
      hint = 'do not acknowledge, fail, release or extend them';
  end if;
end $$;

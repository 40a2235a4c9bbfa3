-- posthaste.kind_settings: locks the settings of a queue whose kind is to be paused or resumed.
-- Returns: the settings. Errors: PH404; PH400, PH413 of the kind; PH503. Locks: the queue's settings.
create or replace function posthaste.kind_settings(p_queue text, p_kind text)
returns posthaste.queue_settings language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_id int := posthaste.find_queue(p_queue);
  q posthaste.queue_settings;
begin
  if coalesce(p_kind, '') = '' then
    raise exception using errcode = 'PH400', column = 'kind', message = 'kind must not be empty', hint = 'to pause all messages, pause the queue';
  elsif octet_length(p_kind) > 255 then
    raise exception using errcode = 'PH413', column = 'kind', message = format('kind has %s bytes, at most 255 are allowed', octet_length(p_kind));
  end if;
  perform posthaste.lock_queue(v_id, 'settings');
  select * into q from posthaste.queue_settings x where x.id = v_id and x.dropped_at is null for no key update;
  if not found then
    perform posthaste.find_queue(p_queue); -- raises an error if it was dropped meanwhile
  end if;
  return q;
end $$;

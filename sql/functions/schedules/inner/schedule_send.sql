-- posthaste.schedule_send: sends the message of a schedule, with its name and more in the headers.
-- Returns: its id. Errors: as posthaste.send.
create or replace function posthaste.schedule_send(s posthaste.schedule_settings, p_queue text, p_headers jsonb)
returns bigint language sql volatile set search_path = pg_catalog, pg_temp as $$
  select posthaste.send(p_queue, s.payload::text, s.options || jsonb_build_object('headers', coalesce(nullif(s.options -> 'headers', 'null'), '{}')
    || jsonb_build_object('posthaste-schedule', s.name) || p_headers))
$$;

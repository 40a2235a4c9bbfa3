-- posthaste.tick_send: sends the message of one tick, with the tick in its headers.
-- Returns: its id. Errors: as posthaste.send.
create or replace function posthaste.tick_send(s posthaste.schedule_settings, p_queue text, p_tick timestamptz)
returns bigint language sql volatile set search_path = pg_catalog, pg_temp as $$
  select posthaste.schedule_send(s, p_queue, jsonb_build_object('posthaste-tick', to_char(p_tick at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))
$$;

-- posthaste.pause_note: since when, by whom, until when and why a queue is paused, as the end of a
-- sentence; '' if that is unknown. Reads: pauses.
create or replace function posthaste.pause_note(p_queue int)
returns text language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce((
    select format(' since %s by %s, until %s', to_char(p.since at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), p.by,
             coalesce(to_char(p.until at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), 'it is resumed')) || coalesce(' (' || p.reason || ')', '')
      from posthaste.pauses p where p.queue_id = p_queue and p.what = 'queue'), '')
$$;

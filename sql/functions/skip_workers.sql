-- posthaste.skip_workers: leaves out the next thousand ids of workers, and more by
-- chance, which somebody may bear of whom this database does not know: a standby that
-- was promoted, or a copy. Sets: registrations_id_seq.
create or replace function posthaste.skip_workers()
returns void language sql volatile set search_path = pg_catalog, pg_temp as $$
  select setval('posthaste.registrations_id_seq', (select g.last_value + 1000 + floor(random() * 1000000)::bigint from posthaste.registrations_id_seq g)) $$;

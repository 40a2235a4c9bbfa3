-- posthaste.doctor_identity: is this the database that its messages were sent in,
-- or a copy, where nothing is handed out? Reads: what not_here reads.
create or replace function posthaste.doctor_identity()
returns table (level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return query select 'fault', n.message, n.hint, null::text, null::text from posthaste.not_here() n where n.message is not null;
end $$;

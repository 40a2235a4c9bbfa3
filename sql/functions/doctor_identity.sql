-- posthaste.doctor_identity: is this the database that its messages were sent in,
-- or a copy, where nothing is handed out? Reads: identity.
create or replace function posthaste.doctor_identity()
returns table (level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  if not posthaste.is_original() then
    return query select 'fault', 'this database is a copy of the one that its messages were sent in: nothing is handed out',
      'sending works; if the original hands out nothing any more, run `posthaste rebase`, or after pg_upgrade `posthaste rebase --same-ids`', null::text, null::text;
  end if;
end $$;

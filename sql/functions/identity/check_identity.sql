-- posthaste.check_identity: refuses in a database that is a copy, or may be one.
-- A database restored from a dump, cloned or moved by logical replication has
-- other transaction ids, and no trace in the ids shows it; claims by stored
-- snapshots would skip messages in silence. A physical copy would hand out what the
-- original does. A backend never changes its database, and ends with its server, so
-- the answer is remembered for the session.
-- Arguments: from where who asks comes, if it says so; its worker, if it has one.
-- Errors: PH503. Reads: what not_here reads. Updates: what admit updates.
create or replace function posthaste.check_identity(p_environment text default null, p_worker bigint default null)
returns void language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v record;
begin
  -- Who is registered here came from here.
  if not posthaste.is_original() or not exists (select from posthaste.registrations r where r.id = p_worker) then
    v := posthaste.not_here(p_environment);
    if v.message is not null then
      raise exception using errcode = 'PH503', message = v.message, hint = v.hint;
    end if;
  end if;
  perform posthaste.admit();
  perform set_config('posthaste.identity_checked', 'yes', false);
end $$;

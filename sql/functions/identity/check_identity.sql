-- posthaste.check_identity: raises an error in a database that is a copy, or may be one.
-- A database restored from a dump, cloned or moved by logical replication has other
-- transaction ids, and the ids themselves do not show it. Claims by stored snapshots would
-- skip messages silently. A physical copy would hand out the same messages as the original.
-- A backend never changes its database and ends with its server, so the result is cached for
-- the session.
-- Arguments: the caller's environment, if known; its worker, if it has one.
-- Errors: PH503. Reads: the tables of not_here. Updates: the tables of admit.
create or replace function posthaste.check_identity(p_environment text default null, p_worker bigint default null)
returns void language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v record;
begin
  -- A worker that is registered here belongs to this database.
  if not posthaste.is_original() or not exists (select from posthaste.registrations r where r.id = p_worker) then
    v := posthaste.not_here(p_environment);
    if v.message is not null then
      raise exception using errcode = 'PH503', message = v.message, hint = v.hint;
    end if;
  end if;
  perform posthaste.admit();
  perform set_config('posthaste.identity_checked', 'yes', false);
end $$;

-- posthaste.refuse_copy: refuses in a database that is a copy, which a session asks
-- once, for a backend never changes its database. Everything that goes by cursors or
-- claims calls this or posthaste.check_identity.
-- Errors: PH503. Reads: identity.
create or replace function posthaste.refuse_copy()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  if coalesce(current_setting('posthaste.original', true), '') = 'yes' then
    return;
  end if;
  if not posthaste.is_original() then
    perform posthaste.check_identity();
  end if;
  perform set_config('posthaste.original', 'yes', false);
end $$;

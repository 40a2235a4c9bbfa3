-- posthaste.refuse_copy: raises an error in a database that is a copy. It checks once per
-- session because a backend never changes its database. Every function that uses cursors or
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

-- posthaste.options_kept: new headers for a message, with the options of its attempts
-- (posthaste.attempt_options) that it had, unless the new ones have some.
-- Arguments: the new headers and the old ones, as they are stored.
create or replace function posthaste.options_kept(p_new jsonb, p_old jsonb)
returns jsonb language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if p_old ? '' and (p_new ? '') is not true then
    return coalesce(p_new, '{}') || jsonb_build_object('', p_old -> '');
  end if;
  return p_new;
end $$;

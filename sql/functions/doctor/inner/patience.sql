-- posthaste.patience: how long something may last before posthaste.doctor tells
-- of it: 5 minutes, or what the session's setting posthaste.patience says, such as
-- set posthaste.patience = '10 seconds'. Errors: 22007 if that is no interval.
create or replace function posthaste.patience()
returns interval language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return coalesce(nullif(current_setting('posthaste.patience', true), ''), '5 minutes')::interval;
end $$;

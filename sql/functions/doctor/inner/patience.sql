-- posthaste.patience: how long a condition may last before posthaste.doctor reports it: 5
-- minutes, or the session's setting posthaste.patience, for example
-- set posthaste.patience = '10 seconds'. Errors: 22007 if that is not an interval.
create or replace function posthaste.patience()
returns interval language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return coalesce(nullif(current_setting('posthaste.patience', true), ''), '5 minutes')::interval;
end $$;

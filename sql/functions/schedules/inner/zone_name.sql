-- posthaste.zone_name: checks the name of a time zone.
-- PostgreSQL accepts more than names: abbreviations, which have no summer time, and any word
-- followed by a number as a zone with that offset. A misspelled name must not become one of
-- these.
-- Returns: the name as it is written. Errors: PH400 with the field time_zone.
create or replace function posthaste.zone_name(p_zone text)
returns text language plpgsql volatile set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
begin
  if upper(p_zone collate "C") = 'UTC' then
    return 'UTC';
  elsif p_zone ~ '^[A-Za-z_-]+(/[A-Za-z_-]+)+$' or p_zone ~* '^Etc/GMT([+-]?0|[+]([1-9]|1[0-2])|-([1-9]|1[0-4]))$' then
    -- The setting returns the canonical name, and ends with this call; the view of all names
    -- would read a file for each.
    return set_config('TimeZone', p_zone, true);
  end if;
  raise invalid_parameter_value;
exception when invalid_parameter_value then
  raise exception using errcode = 'PH400', column = 'time_zone', message = format('unknown time zone %L', p_zone),
    hint = 'use UTC, or a name with a place from the view pg_timezone_names, such as Europe/Berlin';
end $$;

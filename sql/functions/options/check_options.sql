-- posthaste.check_options: refuses unknown options.
-- Arguments: the options; the accepted names; the planned names.
-- Errors: PH400 for an unknown name or a wrong shape, PH501 for a planned one.
create or replace function posthaste.check_options(p_options jsonb, p_known text[], p_planned text[])
returns void language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  k text;
begin
  if p_options is null or p_options = '{}' then
    return;
  end if;
  if jsonb_typeof(p_options) <> 'object' then
    raise exception using errcode = 'PH400', column = 'options', message = format('options must be a JSON object, got %s', jsonb_typeof(p_options));
  end if;
  for k in select jsonb_object_keys(p_options) loop
    if k = any (p_known) then
      continue;
    elsif k = any (p_planned) then
      raise exception using errcode = 'PH501', column = k, message = format('option %L is not supported yet', k);
    end if;
    raise exception using errcode = 'PH400', column = coalesce(nullif(k, ''), 'options'), message = format('unknown option %L', k),
      hint = format('known: %s', array_to_string(p_known, ', '));
  end loop;
end $$;

-- posthaste.check_json: refuses JSON that readers cannot parse: numbers outside the range of
-- a double (JavaScript reads 1e400 as Infinity, Go fails), and numbers of more than 1,000
-- digits. The text of such a number has very many digits, so one regular expression lets
-- most JSON pass.
-- Arguments: the JSON; its text as jsonb writes it; the name of the field. Errors: PH400
-- with that field.
create or replace function posthaste.check_json(p_json jsonb, p_text text, p_field text default 'payload')
returns void language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  v_number numeric;
begin
  if p_text is null or octet_length(p_text) < 250 or p_text !~ '[0-9]{250}' then
    return;
  end if;
  for v_number in select n::numeric from jsonb_path_query(p_json, 'strict $.** ? (@.type() == "number")') n loop
    if abs(v_number) >= 1.797693134862315808e308 or v_number <> 0 and abs(v_number) < 5e-324 or length(v_number::text) > 1000 then
      raise exception using errcode = 'PH400', column = p_field,
        message = format('%s has a number that is beyond ±1.8e308, or too small or too long for readers: %s…', p_field, left(v_number::text, 40)),
        hint = 'send it as a string';
    end if;
  end loop;
end $$;

-- posthaste.attempt_fault: checks the options of attempts, of a message or a kind. Returns a field and
-- its fault, or null. Clients check them too, and say more.
-- Arguments: as in posthaste.attempt_options; whether the queue is at-most-once.
create or replace function posthaste.attempt_fault(p_options jsonb, p_once boolean)
returns text language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  return case
    when jsonb_typeof(p_options) <> 'object' or p_options - '{attempts,timeout,base,max}'::text[] <> '{}'
         or jsonb_path_exists(p_options, 'strict $.* ? (@.type() != "number")') then 'headers shape'
    when p_once and p_options ? 'attempts' then 'max_attempts once'
    when p_once and p_options ?| '{base,max}' then 'backoff once'
    when (p_options ->> 'attempts')::numeric not between 1 and 1000 or (p_options ->> 'attempts')::numeric <> trunc((p_options ->> 'attempts')::numeric) then 'max_attempts range'
    when not ((p_options ->> 'timeout')::numeric > 0 and (p_options ->> 'timeout')::numeric <= 31536000) then 'timeout range'
    when (p_options ->> 'base')::numeric not between 0 and 31536000 or (p_options ->> 'max')::numeric not between 0 and 31536000
         or (p_options ->> 'max')::numeric < (p_options ->> 'base')::numeric then 'backoff range' end;
end $$;

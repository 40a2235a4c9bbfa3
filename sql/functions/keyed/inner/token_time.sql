-- posthaste.token_time: the time that tokens of keys are computed from: a reader's time, or the
-- clock's if it was set back by more than 2 seconds. Otherwise keys would get no tokens until
-- the clock has caught up.
-- Arguments: the reader's time, which never goes back.
create or replace function posthaste.token_time(t timestamptz)
returns timestamptz language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  return case when t > v_now + interval '2 seconds' then v_now else t end;
end $$;

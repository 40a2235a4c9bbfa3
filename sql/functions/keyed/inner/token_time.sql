-- posthaste.token_time: the time by which keys get their tokens: a reader's, or the
-- clock's where that was set back by more than 2 seconds, so that they get them from
-- there on and not only once it is again where it was.
-- Arguments: the reader's time, which never goes back.
create or replace function posthaste.token_time(t timestamptz)
returns timestamptz language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  return case when t > v_now + interval '2 seconds' then v_now else t end;
end $$;

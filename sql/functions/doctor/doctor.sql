-- posthaste.doctor: looks for what is wrong or soon will be, one row for each
-- finding. None at all says that nothing was found. Checks are functions
-- posthaste.doctor_… without arguments that return the same columns; one more is only
-- one more such function.
-- Returns: the check's name; level: 'fault' (something does not work now) or
-- 'warning'; what was found; what to do; the
-- queue and the subscription, if it is about one.
-- Reads what its checks read. Locks: none.
create or replace function posthaste.doctor()
returns table ("check" text, level text, message text, hint text, queue text, subscription text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 as $$
declare
  v_check name;
begin
  for v_check in
    select p.proname from pg_proc p
     where p.pronamespace = 'posthaste'::regnamespace and starts_with(p.proname, 'doctor_') order by p.proname
  loop
    return query execute format('select d.* from posthaste.%I() d', v_check);
  end loop;
end $$;

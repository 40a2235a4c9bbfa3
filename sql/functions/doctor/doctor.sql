-- posthaste.doctor: looks for faults and signs of them, and returns one row for each finding. No
-- row means that nothing was found. Checks are functions posthaste.doctor_… without arguments
-- that return the same columns; a new check needs only such a function.
-- Returns: the check's name; level: 'fault' (something does not work now) or 'warning'; the
-- finding; a hint; the queue and the subscription, if it is about one.
-- Reads the tables of its checks. Locks: none.
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

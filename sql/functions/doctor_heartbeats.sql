-- posthaste.doctor_heartbeats: does a worker beat late, so that it may soon be
-- declared lost? It beats each 3/10 of its lease unless told otherwise, and half
-- of it at least. Reads: registrations.
create or replace function posthaste.doctor_heartbeats()
returns table (level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return query
    select 'warning', format('worker %s (%s) was last heard of %s ago, and is lost after %s', w.id, w.name,
                             date_trunc('milliseconds', clock_timestamp() - w.heartbeat_at), w.lease),
           'its machine may be overloaded or its network slow; a longer lease bears more', null::text, null::text
      from posthaste.registrations w
     where w.lost_at is null and w.ended_at is null and not posthaste.worker_overdue(w)
       and w.heartbeat_at < clock_timestamp() - 0.7 * w.lease
     order by w.id limit 100;
end $$;

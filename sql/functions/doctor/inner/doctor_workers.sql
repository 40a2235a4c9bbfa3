-- posthaste.doctor_workers: does a worker beat late, so that it may soon be declared lost?
-- Is one overdue, or lost with messages that nobody hands out anew? Does anybody maintain the ledger? And have programs of different
-- versions worked beside each other for longer than a rolling upgrade takes?
-- Reads: registrations, counted, positions.
create or replace function posthaste.doctor_workers()
returns table ("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_quiet interval;
begin
  -- It beats each 3/10 of its lease unless told otherwise, and half of it at least.
  return query
    select 'heartbeats', 'warning', format('worker %s (%s) was last heard of %s ago, and is lost after %s', w.id, w.name,
                             date_trunc('milliseconds', clock_timestamp() - w.heartbeat_at), w.lease),
           'its machine may be overloaded or its network slow; a longer lease bears more', null::text, null::text
      from posthaste.registrations w
     where w.lost_at is null and w.ended_at is null and not posthaste.worker_overdue(w)
       and w.heartbeat_at < clock_timestamp() - 0.7 * w.lease
     order by w.id limit 100;
  return query
    select 'workers', 'warning', format('worker %s (%s) was last heard of %s ago and still holds messages', w.id, w.name, date_trunc('second', clock_timestamp() - w.heartbeat_at)),
           'any running worker rescues them, and so does select posthaste.maintain()', null::text, null::text
      from posthaste.registrations w
     where ((w.lost_at is not null or w.ended_at is not null) or posthaste.worker_overdue(w)) and not w.cleared
       and exists (select from posthaste.open_claims(w.id))
     order by w.id limit 100;
  return query
    select 'workers', 'warning', format('workers of %s versions have run side by side for more than an hour: %s', count(*), string_agg(format('%s (%s)', z.version, z.n), ', ' order by z.version)),
           'if they are the same program, an upgrade was not finished: replace the older ones', null::text, null::text
      from (select w.version, count(*) as n, min(w.started_at) as since from posthaste.registrations w
             where w.lost_at is null and w.ended_at is null and w.version <> '' group by w.version) z
    having count(*) > 1 and max(z.since) < clock_timestamp() - interval '1 hour';
  select clock_timestamp() - c.at into v_quiet from posthaste.counted c
   where c.last_value <> (select p.last_value from posthaste.positions p);
  if v_quiet > interval '1 minute' then
    return query select 'workers', 'warning', format('messages flow, and nobody has maintained the ledger for %s', date_trunc('second', v_quiet)),
      'run a worker, or select posthaste.maintain() every second', null::text, null::text;
  end if;
end $$;

-- posthaste.doctor_workers: workers with late heartbeats, which may soon be declared lost;
-- workers that are overdue, or lost with messages that were not redelivered; a ledger that is not
-- maintained; and programs of different versions that have run together for longer than a
-- rolling upgrade takes.
-- Reads: registrations, counted, positions.
create or replace function posthaste.doctor_workers()
returns table ("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_quiet interval;
begin
  -- The default heartbeat interval is 3/10 of the lease, and the longest allowed is half of it.
  return query
    select 'heartbeats', 'warning', format('the last heartbeat of worker %s (%s) was %s ago, and it is declared lost after %s', w.id, w.name,
                             date_trunc('milliseconds', clock_timestamp() - w.heartbeat_at), w.lease),
           'its machine may be overloaded or its network slow; a longer lease tolerates more', null::text, null::text
      from posthaste.registrations w
     where w.lost_at is null and w.ended_at is null and not posthaste.worker_overdue(w)
       and w.heartbeat_at < clock_timestamp() - 0.7 * w.lease
     order by w.id limit 100;
  return query
    select 'workers', 'warning', format('the last heartbeat of worker %s (%s) was %s ago, and it still holds messages', w.id, w.name, date_trunc('second', clock_timestamp() - w.heartbeat_at)),
           'run a worker or select posthaste.maintain() to redeliver them', null::text, null::text
      from posthaste.registrations w
     where ((w.lost_at is not null or w.ended_at is not null) or posthaste.worker_overdue(w)) and not w.cleared
       and exists (select from posthaste.open_claims(w.id))
     order by w.id limit 100;
  return query
    select 'workers', 'warning', format('workers of %s versions have run at the same time for more than an hour: %s', count(*), string_agg(format('%s (%s)', z.version, z.n), ', ' order by z.version)),
           'if they are the same program, an upgrade was not finished: replace the older ones', null::text, null::text
      from (select w.version, count(*) as n, min(w.started_at) as since from posthaste.registrations w
             where w.lost_at is null and w.ended_at is null and w.version <> '' group by w.version) z
    having count(*) > 1 and max(z.since) < clock_timestamp() - interval '1 hour';
  select clock_timestamp() - c.at into v_quiet from posthaste.counted c
   where c.last_value <> (select p.last_value from posthaste.positions p);
  if v_quiet > interval '1 minute' then
    return query select 'workers', 'warning', format('messages flow, but the last maintenance of the ledger was %s ago', date_trunc('second', v_quiet)),
      'run a worker, or select posthaste.maintain() every second', null::text, null::text;
  end if;
end $$;

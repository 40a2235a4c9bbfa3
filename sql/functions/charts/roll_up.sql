-- posthaste.roll_up: sums up the details of one hour that is over, five minutes after its end, so
-- that the transactions that wrote into it have ended. The sums and the note that they were made
-- are one transaction, so that an hour is summed once.
-- Of the errors of each subscription, kind and version the five most frequent are kept, with the
-- first of the workers.
-- Called under the maintenance lock. Inserts: stats, samples. Updates: charted.
create or replace function posthaste.roll_up()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  v_now timestamptz := posthaste.chart_time();
  v_over timestamptz := date_trunc('hour', v_now - interval '5 minutes', 'UTC');
  v_to timestamptz := (select c.summed_to from posthaste.charted c);
  v_next timestamptz;
  v_hour timestamptz;
  v_part smallint;
  v_span posthaste.chart_bounds;
begin
  if v_to > v_now + interval '1 day' then -- the clock was ahead
    v_to := v_over;
    update posthaste.charted set summed_to = v_to;
  end if;
  if v_to >= v_over then
    return;
  end if;
  -- The next hour with details: there are none while upkeep does not run.
  select least((select x.at from posthaste.stats x where x.part < 3 and x.at >= v_to and x.at < v_over order by x.at limit 1),
               (select x.at from posthaste.samples x where x.part < 3 and x.at >= v_to and x.at < v_over order by x.at limit 1)) into v_next;
  v_hour := date_trunc('hour', v_next, 'UTC');
  update posthaste.charted set summed_to = coalesce(v_hour + interval '1 hour', v_over);
  if v_hour is null then
    return;
  end if;
  v_part := posthaste.chart_block(v_hour, true) % 3 + 3;
  v_span := row(v_hour, v_hour + interval '1 hour', interval '1 hour', false, v_hour);
  insert into posthaste.stats (part, at, queue_id, subscription, kind, version, worker, done, retried, failed, wait, run, errors)
  select v_part, v_hour, s.queue_id, s.number, s.kind, s.version, s.worker, s.done, s.retried, s.failed, s.wait, s.run, e.errors
    from (select y.*, row_number() over (partition by y.queue_id, y.number, y.kind, y.version order by y.worker) as n
            from posthaste.stats_sums(v_span, null, null, null, array['queue', 'kind', 'version', 'worker']) y) s
    left join (
      select z.queue_id, z.subscription, z.kind, z.version,
             jsonb_agg(jsonb_build_object('fingerprint', z.fingerprint, 'error', z.error, 'message', z.message, 'count', z.count, 'first', z.first, 'last', z.last) order by z.n) as errors
        from (select x.queue_id, x.subscription, x.kind, x.version, r.fingerprint, sum(r.count) as count, min(x.at) as first, max(x.at) as last,
                     (array_agg(r.error order by x.at desc))[1] as error, (array_agg(r.message order by x.at desc))[1] as message,
                     row_number() over (partition by x.queue_id, x.subscription, x.kind, x.version order by sum(r.count) desc, r.fingerprint) as n
                from posthaste.stats x
               cross join lateral jsonb_to_recordset(x.errors) r (fingerprint text, error text, message bigint, count bigint)
               where x.part < 3 and x.at >= v_hour and x.at < v_hour + interval '1 hour' and x.errors is not null
               group by 1, 2, 3, 4, 5) z
       where z.n <= 5
       group by 1, 2, 3, 4) e
      on s.n = 1 and e.queue_id = s.queue_id and e.subscription = s.number and e.kind = s.kind and e.version = s.version;
  insert into posthaste.samples (part, at, queue_id, subscription, sent, done, retried, lost, expired, depth, in_flight, dead, oldest_age)
  select v_part, v_hour, x.queue_id, x.subscription, sum(x.sent), sum(x.done), sum(x.retried), sum(x.lost), sum(x.expired),
         (array_agg(x.depth order by x.at desc))[1], (array_agg(x.in_flight order by x.at desc))[1], (array_agg(x.dead order by x.at desc))[1],
         (array_agg(x.oldest_age order by x.at desc))[1]
    from posthaste.samples x
   where x.part < 3 and x.at >= v_hour and x.at < v_hour + interval '1 hour'
   group by x.queue_id, x.subscription;
end $$;

-- posthaste.list_samples: the figures of subscriptions by steps, ordered by time; no row for a
-- step in which a subscription did not change.
-- Arguments: the names of queues, null for all; total: sum up all of them, without depth and the
-- columns behind it; time_from (null: an hour before the end); time_before (null: now); step: of
-- whole minutes below an hour, which reads the samples of the last two hours at least, or of
-- whole hours, which reads sums of 30 days at least; null: a minute.
-- Returns: sent, done, retried, lost and expired count messages of the step; depth, in_flight,
-- dead and oldest_age are those at its end, as in the view queues.
-- Errors: PH400 with the field. Reads: samples, charted, queue_settings, subscriptions.
create or replace function posthaste.list_samples(queues text[] default null, total boolean default false, time_from timestamptz default null,
  time_before timestamptz default null, step interval default null)
returns setof posthaste.sample_listed language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  v_span posthaste.chart_bounds := posthaste.chart_span(list_samples.time_from, list_samples.time_before, coalesce(nullif(list_samples.step, '0'), interval '1 minute'));
  v_total boolean := coalesce(list_samples.total, false);
begin
  return query
    with taken as (
      select * from posthaste.samples x where v_span.hours and x.part >= 3 and x.at >= v_span.begins and x.at < v_span.ends
      union all
      select * from posthaste.samples x where x.part < 3 and x.at >= v_span.details_from and x.at < v_span.ends
    )
    select y.at, y.queue, y.subscription, sum(y.sent)::bigint, sum(y.done)::bigint, sum(y.retried)::bigint, sum(y.lost)::bigint, sum(y.expired)::bigint,
           case when not v_total then (array_agg(y.depth order by y.taken_at desc))[1] end, case when not v_total then (array_agg(y.in_flight order by y.taken_at desc))[1] end,
           case when not v_total then (array_agg(y.dead order by y.taken_at desc))[1] end,
           case when not v_total then make_interval(secs => (array_agg(y.oldest_age order by y.taken_at desc))[1]) end
      from (select date_bin(v_span.step, x.at, '1970-01-01 00:00+00') as at, case when not v_total then s.queue end as queue, case when not v_total then s.subscription end as subscription,
                   x.at as taken_at, x.sent, x.done, x.retried, x.lost, x.expired, x.depth, x.in_flight, x.dead, x.oldest_age
              from taken x join posthaste.chart_names(list_samples.queues, null) s on s.queue_id = x.queue_id and s.number = x.subscription
             where x.at >= s.since) y
     group by 1, 2, 3
     order by 1, 2, 3;
end $$;

-- posthaste.stats_sums: sums of what workers counted, by steps and groups, ordered by time.
-- Arguments: the span (posthaste.chart_span); the queue, the subscription and the kind, null for
-- all; by what to group: queue (and subscription), kind, version, worker.
-- Returns: as posthaste.stats_listed, with the numbers of the queue and the subscription.
-- Columns that are not grouped by are null.
-- Each report is read once: its counts are summed in the rows of its buckets.
-- Reads: stats, queue_settings, subscriptions.
create or replace function posthaste.stats_sums(p_span posthaste.chart_bounds, p_queue text, p_subscription text, p_kind text, p_by text[])
returns table (queue_id int, number smallint, at timestamptz, queue text, subscription text, kind text, version text, worker text,
  done bigint, retried bigint, failed bigint, wait bigint[], run bigint[])
language plpgsql volatile set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
begin
  return query
    with reports as (
      select * from posthaste.stats x where p_span.hours and x.part >= 3 and x.at >= p_span.begins and x.at < p_span.ends
      union all
      select * from posthaste.stats x where x.part < 3 and x.at >= p_span.details_from and x.at < p_span.ends
    ), places as (
      select case when p_span.step is null then p_span.begins else date_bin(p_span.step, x.at, '1970-01-01 00:00+00') end as at,
             case when 'queue' = any (p_by) then s.queue_id end as queue_id, case when 'queue' = any (p_by) then s.number end as number,
             case when 'queue' = any (p_by) then s.queue end as queue, case when 'queue' = any (p_by) then s.subscription end as subscription,
             case when 'kind' = any (p_by) then x.kind end as kind, case when 'version' = any (p_by) then x.version end as version,
             case when 'worker' = any (p_by) then x.worker end as worker,
             b.place, sum(b.done) as done, sum(b.retried) as retried, sum(b.failed) as failed, sum(b.wait) as wait, sum(b.run) as run
        from reports x
        join posthaste.chart_names(case when p_queue is not null then array[p_queue] end, p_subscription) s on s.queue_id = x.queue_id and s.number = x.subscription
       cross join lateral unnest(array[x.done], array[x.retried], array[x.failed], x.wait, x.run) with ordinality b (done, retried, failed, wait, run, place)
       where x.at >= s.since and (p_kind is null or x.kind = p_kind) and x.done + x.retried + x.failed > 0
       group by 1, 2, 3, 4, 5, 6, 7, 8, b.place
    )
    select p.queue_id, p.number, p.at, p.queue, p.subscription, p.kind, p.version, p.worker,
           sum(p.done)::bigint, sum(p.retried)::bigint, sum(p.failed)::bigint,
           coalesce(array_agg(p.wait::bigint order by p.place) filter (where p.wait is not null), '{}'),
           coalesce(array_agg(p.run::bigint order by p.place) filter (where p.run is not null), '{}')
      from places p
     group by 1, 2, 3, 4, 5, 6, 7, 8
     order by p.at, p.queue, p.subscription, p.kind, p.version, p.worker;
end $$;

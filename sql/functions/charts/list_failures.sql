-- posthaste.list_failures: failed attempts by subscription, kind, version of the program, and
-- fingerprint of the error, most frequent first.
-- Arguments: queue, subscription and kind, null for any; time_from: from when on to count them
-- (null: an hour ago), a full hour if that is longer ago than two hours; max: 1 to 1000.
-- Returns: error and message_id are of the newest; first_at may be before time_from: it is the
-- first report with the error that is kept.
-- Errors: PH400 with the field. Reads: stats, charted, queue_settings, subscriptions.
create or replace function posthaste.list_failures(queue text default null, subscription text default null, kind text default null, time_from timestamptz default null, max bigint default 100)
returns setof posthaste.failure_listed language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  v_span posthaste.chart_bounds := posthaste.chart_span(coalesce(list_failures.time_from, posthaste.chart_time() - interval '1 hour'), 'infinity', null);
  v_max int := case when list_failures.max between 1 and 1000 then list_failures.max end;
begin
  if v_max is null then
    raise exception using errcode = 'PH400', column = 'limit', message = format('a call lists 1 to 1000 failures, not %s', list_failures.max);
  end if;
  return query
    select f.queue, f.subscription, f.kind, f.version, f.fingerprint, (array_agg(f.error order by f.last desc) filter (where f.counts))[1],
           (array_agg(f.message order by f.last desc) filter (where f.counts))[1], sum(f.count) filter (where f.counts)::bigint, min(f.first), max(f.last) filter (where f.counts)
      from (select s.queue, s.subscription, x.kind, x.version, r.fingerprint, r.error, r.message, r.count, coalesce(r.first, x.at) as first, coalesce(r.last, x.at) as last,
                   case when x.part < 3 then x.at >= v_span.details_from else v_span.hours and x.at >= v_span.begins end as counts
              from posthaste.stats x
              join posthaste.chart_names(case when list_failures.queue <> '' then array[list_failures.queue] end, nullif(list_failures.subscription, '')) s
                on s.queue_id = x.queue_id and s.number = x.subscription and x.at >= s.since
             cross join lateral jsonb_to_recordset(x.errors) r (fingerprint text, error text, message bigint, count bigint, first timestamptz, last timestamptz)
             where x.errors is not null and (coalesce(list_failures.kind, '') = '' or x.kind = list_failures.kind)) f
     group by 1, 2, 3, 4, 5
    having bool_or(f.counts)
     order by 8 desc, 1, 2, 3, 4, 5
     limit v_max;
end $$;

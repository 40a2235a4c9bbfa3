-- posthaste.list_stats: what workers counted: one row for each step and group, ordered by time.
-- Arguments: queue, subscription and kind, null for any; time_from (null: an hour before the end);
-- time_before (null: now); step: of whole minutes below an hour, which reads the reports of the
-- last two hours at least, or of whole hours, which reads sums of 30 days at least; null for one
-- step; group_by: any of queue (with the subscription), kind, version and worker.
-- Returns: columns that are not grouped by are null. wait and run: how many messages waited, and
-- ran, below 1 ms, below 2 ms, below 4 ms, and so on.
-- Errors: PH400 with the field. Reads: stats, charted, queue_settings, subscriptions.
create or replace function posthaste.list_stats(queue text default null, subscription text default null, kind text default null, time_from timestamptz default null,
  time_before timestamptz default null, step interval default null, group_by text[] default null)
returns setof posthaste.stats_listed language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_by text[] := coalesce(list_stats.group_by, '{}');
begin
  if not v_by <@ array['queue', 'kind', 'version', 'worker'] then
    raise exception using errcode = 'PH400', column = 'group_by', message = format('group_by must have any of queue, kind, version and worker, got %s', array_to_string(v_by, ', ', 'null'));
  end if;
  return query
    select s.at, s.queue, s.subscription, s.kind, s.version, s.worker, s.done, s.retried, s.failed, s.wait, s.run
      from posthaste.stats_sums(posthaste.chart_span(list_stats.time_from, list_stats.time_before, list_stats.step),
                                nullif(list_stats.queue, ''), nullif(list_stats.subscription, ''), nullif(list_stats.kind, ''), v_by) s;
end $$;

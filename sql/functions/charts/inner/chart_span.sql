-- posthaste.chart_span: the bounds of a query of figures about the past.
-- Arguments: from when (null: an hour before the end); before when (null: no bound); the step: of
-- whole minutes below an hour, or of whole hours; null or zero for the whole time in one.
-- Returns: begins, rounded down to a step; ends; step, null for one; hours: read the sums by
-- hour, and not the details; details_from: from when on to read details.
-- With one step details are read if it begins at most two hours ago, with a minute to spare for
-- the clocks of callers. Errors: PH400. Reads: charted.
create or replace function posthaste.chart_span(p_from timestamptz, p_before timestamptz, p_step interval)
returns posthaste.chart_bounds language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := posthaste.chart_time();
  b posthaste.chart_bounds;
  v_seconds numeric := nullif(extract(epoch from p_step), 0);
begin
  if v_seconds < 0 or v_seconds % (case when v_seconds < 3600 then 60 else 3600 end) <> 0 then
    raise exception using errcode = 'PH400', column = 'step', message = format('step must be whole minutes below an hour, or whole hours, got %s', p_step);
  end if;
  b.begins := coalesce(p_from, coalesce(p_before, v_now) - interval '1 hour');
  b.ends := coalesce(p_before, 'infinity');
  if b.begins >= b.ends then
    raise exception using errcode = 'PH400', column = 'time_from', message = format('time_from must be before time_before, got %s and %s', b.begins, b.ends);
  end if;
  b.step := make_interval(secs => v_seconds);
  b.hours := coalesce(v_seconds >= 3600, b.begins < v_now - interval '121 minutes');
  b.begins := date_bin(coalesce(b.step, case when b.hours then interval '1 hour' else interval '1 minute' end), b.begins, '1970-01-01 00:00+00');
  b.details_from := case when b.hours then greatest(b.begins, (select c.summed_to from posthaste.charted c)) else b.begins end;
  return b;
end $$;

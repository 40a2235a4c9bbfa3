-- posthaste.forget_charts: truncates the part of the details, or of the sums by hour, whose turn
-- comes next: that of the block before the last two. Details are kept for two hours at least, and
-- until they are summed. Sums are kept for 30 days at least: their part is truncated in the last
-- two days of a block. If that was missed, the part has rows of two blocks, and is truncated in
-- its next turn.
-- A part that is being read is left for the next round.
-- Returns: whether a part was truncated: then end the transaction, because queries wait for it.
-- Called under the maintenance lock. Locks: ACCESS EXCLUSIVE on the part, for 50 ms at most.
-- Updates: charted.
create or replace function posthaste.forget_charts()
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '50ms' as $$
declare
  v_now timestamptz := posthaste.chart_time();
  v_details int := posthaste.chart_block(v_now, false) + 1;
  v_hours int := posthaste.chart_block(v_now + interval '2 days', true);
  k posthaste.charted;
  v_part int;
  v_any boolean;
begin
  select * into k from posthaste.charted;
  if k.details_block <> v_details and posthaste.chart_block(k.summed_to, false) >= v_details - 2 then
    v_part := v_details % 3;
  elsif k.hours_block <> v_hours and posthaste.chart_block(v_now, true) < v_hours then
    v_part := v_hours % 3 + 3;
  else
    return false;
  end if;
  execute format('select exists (select from posthaste.stats_%1$s) or exists (select from posthaste.samples_%1$s)', v_part) into v_any;
  if v_any then
    begin
      execute format('truncate posthaste.stats_%1$s, posthaste.samples_%1$s', v_part);
    exception when lock_not_available then
      return false;
    end;
  end if;
  update posthaste.charted
     set details_block = case when v_part < 3 then v_details else details_block end, hours_block = case when v_part < 3 then hours_block else v_hours end;
  return v_any;
end $$;

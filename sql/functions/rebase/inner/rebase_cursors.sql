-- posthaste.rebase_cursors: makes every reader begin before the entries that were just appended,
-- which are all there are, and removes all holders.
-- Called by posthaste.rebase under its locks. Inserts: claims. Updates: subscriptions,
-- queue_settings, counted, registrations, limit_states. Deletes: the tables with claims and
-- leases.
create or replace function posthaste.rebase_cursors()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_first pg_snapshot := posthaste.first_snapshot();
  own bigint := pg_current_xact_id()::text::bigint;
  v_now pg_snapshot := pg_current_snapshot();
  v_open bigint[];
  r record;
  v_cursor posthaste.claims;
begin
  update posthaste.subscriptions set since = v_first;
  update posthaste.queue_settings set purged = null where purged is not null;
  for r in select k.queue_id, k.number, k.lane, k.keyed, k.c, k.w from pg_temp.rebase_readers k order by 1, 2, 3 loop
    foreach v_cursor in array array[r.c, r.w] loop
      continue when v_cursor.id is null; -- it begins where its subscription begins
      v_cursor := posthaste.without_places(v_cursor);
      v_cursor.id := null;
      v_cursor.window_claim := null;
      v_cursor.part := case when v_cursor.reader & 1 = 1 then 2 when r.keyed then 4 else v_cursor.part end;
      v_cursor.s0 := v_first;
      v_cursor.s1 := v_first;
      if v_cursor.reader & 1 = 1 then
        v_cursor.t0 := '-infinity';
        v_cursor.t1 := '-infinity';
        v_cursor.last_due := '-infinity';
      end if;
      v_cursor.last_xid := '0';
      v_cursor.last_pos := 0;
      v_cursor.ended := true;
      v_cursor.open := case when r.keyed and v_cursor.reader & 1 = 1 then '{}'::bigint[] end;
      v_cursor.busy := null;
      perform posthaste.put_claim(v_cursor, null, null, null, false);
    end loop;
  end loop;
  -- All entries of this transaction are counted.
  v_open := array(select x from (select y::text::bigint as x from pg_snapshot_xip(v_now) y union select generate_series(pg_snapshot_xmax(v_now)::text::bigint, own - 1)) z where x <> own order by x);
  update posthaste.counted
     set s = format('%s:%s:%s', coalesce(v_open[1], greatest(pg_snapshot_xmax(v_now)::text::bigint, own + 1)), greatest(pg_snapshot_xmax(v_now)::text::bigint, own + 1), array_to_string(v_open, ','))::pg_snapshot,
         last_value = (select p.last_value from posthaste.positions p), at = clock_timestamp();
  update posthaste.registrations set lost_at = clock_timestamp() where lost_at is null and ended_at is null;
  update posthaste.registrations set cleared = true where not cleared;
  -- A worker of the original must not be mistaken for one of these: as in posthaste.admit.
  perform setval('posthaste.registrations_id_seq', g.last_value + 1000 + floor(random() * 1000000)::bigint) from posthaste.registrations_id_seq g;
  update posthaste.limit_states set open = '{}', full_since = null;
  delete from posthaste.stragglers;
  delete from posthaste.held_claims;
  delete from posthaste.lease_cursors;
  delete from posthaste.lane_wishes;
  delete from posthaste.history_aside;
  delete from posthaste.carried;
  -- Messages parked ahead are parked, and the rest of the log with them.
  delete from posthaste.ahead;
  delete from posthaste.ahead_keys;
end $$;

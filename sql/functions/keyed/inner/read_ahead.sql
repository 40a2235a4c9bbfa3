-- posthaste.read_ahead: looks ahead of a fair lane's cursor for keys that wait behind the
-- backlog of others, and parks the first messages of each, so that they take turns before the
-- cursor reaches them. Entries that stay in the log are read and not written: a million
-- messages of one key take a second or two, once.
-- Arguments: the queue; the log's cursor, within a window; how far the lane was read ahead
-- (null: not at all); the last number given in its line; its subscription's filter; the
-- claim's snapshot; the live slots.
-- Returns: how far it was read now; the last number given. It continues where it stopped as
-- long as the cursor is in the same window, and from the cursor on in the next one. A call
-- reads at most 65,536 entries, and fewer once it parked 8,192 of them. The bound is a count
-- because with a bound by time a busy machine would make little progress.
-- Messages of a key beyond its share ahead stay in the log, and so do all later ones of it:
-- otherwise they would be handed out before those in between. Parked messages are withdrawn
-- from the log (outcome 'parked'), so that the cursor skips them.
-- Called under the lane's lock. Inserts: ahead, ahead_keys, parked, cancelled.
-- Updates: ahead_keys, keys.
create or replace function posthaste.read_ahead(q posthaste.queue_settings, c posthaste.claims, inout a posthaste.ahead, inout turn bigint, p_filter jsonb, s pg_snapshot, l posthaste.live)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set jit = off as $$
#variable_conflict use_variable
declare
  v_subscriber bigint := c.reader >> 10;
  v_lane int := (c.reader >> 1) & 511;
  b posthaste.ahead := a;
  f record;
  n int;
  r record;
  v_share int;
  v_read int := 0;
begin
  if a.reading is null or a.base0::text <> c.s0::text or a.base1::text <> c.s1::text
     or a.s1::text = c.s1::text and a.s0::text = c.s0::text and (c.last_xid, c.last_pos) > (a.last_xid, a.last_pos) then
    a := row(v_subscriber, v_lane, coalesce(a.id, 0), coalesce(a.id, 0) + 1, c.s0, c.s1, c.s0, c.s1, c.last_xid, c.last_pos, 0, false);
    b.parked := 0;
  end if;
  a.complete := false;
  loop
    f := posthaste.ordered_slice(q.id, v_lane, a.s0, a.s1, a.last_xid, a.last_pos, 8192, l);
    n := cardinality(f.poss);
    if n > 0 then
      v_share := case when a.parked < 8192 then 2048 when a.parked < 65536 then 32 else 10 end;
      -- A key is looked up once, and not for each message.
      with known as materialized (
        select g.key, g.places, k.parked
          from (select coalesce(u.key, '') as key, array_agg(u.i::int) as places from unnest(f.keys) with ordinality u (key, i) group by 1) g
          left join lateral (
            select y.parked, y.left_in_log from posthaste.ahead_keys y
             where y.subscriber = v_subscriber and y.lane = v_lane and y.reading = a.reading and y.key = g.key limit 1) k on true
         where k.left_in_log is not true
      ), fresh as materialized (
        select k.key, coalesce(k.parked, 0) as before, x.i, row_number() over (partition by k.key order by x.i) as nth
          from known k cross join lateral unnest(k.places) x (i)
         -- Not exists, which may become a join that scans all of them.
         where (select z.pos from posthaste.cancelled z where z.pos = f.poss[x.i] and z.subscriber = v_subscriber limit 1) is null
      ), counts as (
        insert into posthaste.ahead_keys as k (subscriber, lane, reading, key, parked, left_in_log)
        select v_subscriber, v_lane, a.reading, x.key, least(count(*), v_share), count(*) > v_share from fresh x group by x.key
        on conflict (subscriber, lane, reading, key) do update
          set parked = least(k.parked + excluded.parked, greatest(v_share, k.parked)), left_in_log = excluded.left_in_log or k.parked + excluded.parked > v_share
      ), taken as (
        select x.* from fresh x where x.nth + x.before <= v_share
      ), names as (
        select x.key, min(x.i) as i, case when count(*) + max(x.before) > v_share then 16 else count(*) end as n from fresh x group by x.key
      )
      select (select array_agg(f.ords[x.i] order by x.i) from taken x) as ords, (select array_agg(f.poss[x.i] order by x.i) from taken x) as poss,
             array_agg(x.key order by x.i) as keys, array_agg(x.n order by x.i) as counts
        into r from names x;
      if r.poss is not null then
        a.parked := a.parked + posthaste.park_ahead(v_subscriber, v_lane, p_filter, r.ords, r.poss);
      end if;
      if r.keys is not null then
        turn := posthaste.line_up(v_subscriber, r.keys, r.counts, turn);
      end if;
      a.last_xid := f.ords[n];
      a.last_pos := f.poss[n];
    end if;
    if n < 8192 then
      if a.s1::text = s::text then
        a.complete := true;
        exit;
      end if;
      a.s0 := a.s1;
      a.s1 := s;
      a.last_xid := '0';
      a.last_pos := 0;
    end if;
    v_read := v_read + n;
    exit when v_read >= 65536 or a.parked - coalesce(b.parked, 0) >= 8192;
  end loop;
  -- If nothing was found, the next one begins at the same place.
  if v_read > 0 or n > 0 or a.reading is distinct from b.reading or a.complete <> b.complete then
    a.id := a.id + 1;
    insert into posthaste.ahead select a.*;
  end if;
end $$;

-- posthaste.read_ahead: looks ahead of a fair lane's cursor for keys that wait behind
-- the backlog of others, and parks the first messages of each, so that they take
-- turns before the cursor comes to them. What it leaves in the log costs a look and
-- no writing: a million messages of one key are passed in a second or two, and once.
-- Arguments: the queue; the log's cursor, in the midst of a window; its subscription's
-- filter; the claim's snapshot and time; the live slots.
-- Returns: keys of which something was parked. It goes on where it stopped as long as
-- the cursor is in the same window, and from the cursor on in the next one. A call
-- reads 65,536 entries at most, and fewer once it parked 8,192 of them: bounded by
-- count, for a busy machine would otherwise hardly get on.
-- Of a key that has more than its share ahead nothing is taken beyond it until then,
-- or its later messages would be handed out before those between. What is parked is
-- withdrawn from the log (outcome 'parked'): the cursor passes it.
-- Called under the lane's lock. Inserts: ahead, ahead_keys, parked, cancelled.
-- Updates: ahead, ahead_keys, keys.
create or replace function posthaste.read_ahead(q posthaste.queue_settings, c posthaste.claims, p_filter jsonb, s pg_snapshot, t timestamptz, l posthaste.live)
returns text[] language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off as $$
declare
  v_subscriber bigint := c.reader >> 10;
  v_lane int := (c.reader >> 1) & 511;
  a posthaste.ahead;
  f record;
  n int;
  v_share int;
  v_ords xid8[];
  v_poss bigint[];
  v_keys text[];
  v_again text[] := '{}';
  v_old boolean;
  v_read int := 0;
  v_parked bigint;
begin
  select * into a from posthaste.ahead z where z.subscriber = v_subscriber and z.lane = v_lane;
  v_old := a.lane is not null;
  if not v_old or a.base0::text <> c.s0::text or a.base1::text <> c.s1::text
     or a.s1::text = c.s1::text and a.s0::text = c.s0::text and (c.last_xid, c.last_pos) > (a.last_xid, a.last_pos) then
    delete from posthaste.ahead_keys z where z.subscriber = v_subscriber and z.lane = v_lane;
    a := row(v_subscriber, v_lane, c.s0, c.s1, c.s0, c.s1, c.last_xid, c.last_pos, 0, false);
  end if;
  a.complete := false;
  v_parked := a.parked;
  loop
    f := posthaste.ordered_slice(q.id, v_lane, a.s0, a.s1, a.last_xid, a.last_pos, 8192, l);
    n := cardinality(f.poss);
    if n > 0 then
      v_share := case when a.parked < 8192 then 2048 when a.parked < 65536 then 32 else 10 end;
      -- Another key is looked up once, and not for each message.
      with come as materialized (
        select coalesce(u.key, '') as key, u.ord, u.pos, u.i
          from unnest(f.keys, f.ords, f.poss) with ordinality u (key, ord, pos, i)
         -- Not by exists, which would probe an index for each.
         where coalesce(u.key, '') not in (select k.key from posthaste.ahead_keys k where k.subscriber = v_subscriber and k.lane = v_lane and k.left_in_log)
      ), fresh as materialized (
        select x.*, row_number() over (partition by x.key order by x.i) as nth
          from come x
         where not exists (select from posthaste.cancelled z where z.pos = x.pos and z.subscriber = v_subscriber)
      ), counts as (
        insert into posthaste.ahead_keys as k (subscriber, lane, key, parked, left_in_log)
        select v_subscriber, v_lane, x.key, least(count(*), v_share), count(*) > v_share from fresh x group by x.key
        on conflict (subscriber, lane, key) do update
          set parked = least(k.parked + excluded.parked, greatest(v_share, k.parked)), left_in_log = excluded.left_in_log or k.parked + excluded.parked > v_share
      ), taken as (
        select x.* from fresh x left join posthaste.ahead_keys k on k.subscriber = v_subscriber and k.lane = v_lane and k.key = x.key
         where x.nth + coalesce(k.parked, 0) <= v_share
      )
      select array_agg(x.ord order by x.i), array_agg(x.pos order by x.i), array_agg(x.key order by x.i) into v_ords, v_poss, v_keys from taken x;
      if v_poss is not null then
        a.parked := a.parked + posthaste.park_ahead(v_subscriber, v_lane, p_filter, v_ords, v_poss);
        v_again := v_again || array(select x.key from (select u.key, min(u.i) as i from unnest(v_keys) with ordinality u (key, i) group by 1) x where x.key not in (select y from unnest(v_again) y) order by x.i);
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
    exit when v_read >= 65536 or a.parked - v_parked >= 8192;
  end loop;
  insert into posthaste.ahead as z select a.*
  on conflict (subscriber, lane) do update
    set base0 = excluded.base0, base1 = excluded.base1, s0 = excluded.s0, s1 = excluded.s1,
        last_xid = excluded.last_xid, last_pos = excluded.last_pos, parked = excluded.parked, complete = excluded.complete;
  return v_again;
end $$;

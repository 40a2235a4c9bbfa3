-- posthaste.warm_up: makes a session prepare its plans for claiming, reading and settling before
-- the first message comes. With the leaves of the ring they take some 50 ms, once per session,
-- which would otherwise delay the first message.
-- It hands nothing out and writes nothing: it asks for a queue that does not exist.
create or replace function posthaste.warm_up()
returns void language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 set jit = off as $$
declare
  l posthaste.live := posthaste.live_slots();
  s pg_snapshot := pg_current_snapshot();
  v_cursor posthaste.claims := posthaste.cursor_of(0, l);
begin
  v_cursor.slot := 0;
  v_cursor.id := 0;
  v_cursor.places := 1;
  v_cursor.part := 0;
  v_cursor.single := false;
  v_cursor.alone := false;
  v_cursor.s0 := s;
  v_cursor.s1 := s;
  v_cursor.first_xid := '0';
  v_cursor.first_pos := 0;
  v_cursor.last_xid := '0';
  v_cursor.last_pos := 0;
  v_cursor.last_due := '-infinity';
  v_cursor.t0 := '-infinity';
  v_cursor.t1 := '-infinity';
  perform posthaste.fresh_slice(0, 0, s, s, '0', 0, 1, l);
  perform posthaste.settle_claim(v_cursor, B'0', B'0', null);
  perform posthaste.fetch(0, 0);
  perform posthaste.settle(array[0::bigint], array[B'0'::bit varying]);
  begin
    perform posthaste.fetch(null, null, array[v_cursor]);
  exception when sqlstate 'PH409' then
    null; -- the missing row
  end;
  v_cursor.part := 2;
  v_cursor.ended := true;
  perform posthaste.due_idle(0, 0, v_cursor, clock_timestamp(), l);
end $$;

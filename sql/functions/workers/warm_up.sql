-- posthaste.warm_up: lets a session make its plans of claiming, reading and
-- settling before the first message comes: over the leaves of the ring they take
-- some 50 ms, which would else be waited for once in each session.
-- Hands nothing out and writes nothing: it asks for a queue that does not exist.
create or replace function posthaste.warm_up()
returns void language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 set jit = off as $$
declare
  l posthaste.live := posthaste.live_slots();
  s pg_snapshot := pg_current_snapshot();
  c posthaste.claims := posthaste.cursor_of(0, l);
begin
  c.slot := 0;
  c.id := 0;
  c.places := 1;
  c.part := 0;
  c.single := false;
  c.alone := false;
  c.s0 := s;
  c.s1 := s;
  c.first_xid := '0';
  c.first_pos := 0;
  c.last_xid := '0';
  c.last_pos := 0;
  c.last_due := '-infinity';
  c.t0 := '-infinity';
  c.t1 := '-infinity';
  perform posthaste.fresh_slice(0, 0, s, s, '0', 0, 1, l);
  perform posthaste.settle_claim(c, B'0', B'0', null);
  perform posthaste.fetch(0, 0);
  perform posthaste.settle(array[0::bigint], array[B'0'::bit varying]);
  begin
    perform posthaste.fetch(null, null, array[c]);
  exception when sqlstate 'PH409' then
    null; -- the row that it has not
  end;
  c.part := 2;
  c.ended := true;
  perform posthaste.due_idle(0, 0, c, clock_timestamp(), l);
end $$;

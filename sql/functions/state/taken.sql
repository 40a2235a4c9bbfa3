-- posthaste.taken: whether a reader had passed an entry by the time of a claim: false up to
-- one of its claims and true from it on.
-- Arguments: the claim with its snapshots filled in; the entry's key, with a null due time on
-- the fresh track.
create or replace function posthaste.taken(c posthaste.claims, p_xid xid8, p_pos bigint, p_due timestamptz)
returns boolean language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if p_due is null then
    return pg_visible_in_snapshot(p_xid, c.s0)
      or (pg_visible_in_snapshot(p_xid, c.s1) and (c.ended or (p_xid, p_pos) <= (c.last_xid, c.last_pos)));
  elsif pg_visible_in_snapshot(p_xid, c.s0) then
    return p_due <= c.t0 or (p_due <= c.t1 and c.part = 2 and (c.ended or (p_due, p_pos) <= (c.last_due, c.last_pos)));
  end if;
  return pg_visible_in_snapshot(p_xid, c.s1) and p_due <= c.t1
     and (c.part = 2 or c.ended or (p_xid, p_pos) <= (c.last_xid, c.last_pos));
end $$;

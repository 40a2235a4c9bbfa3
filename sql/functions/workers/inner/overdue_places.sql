-- posthaste.overdue_places: the places of a claim that are not settled and have no holder any
-- more: its worker is gone, or their leases are over. Ascending.
-- Called under the claim's lock. Reads: registrations, settlements, leases.
create or replace function posthaste.overdue_places(c posthaste.claims)
returns int[] language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_until timestamptz;
begin
  if c.holder is not null then
    if exists (select from posthaste.registrations w where w.id = c.holder and w.lost_at is null and w.ended_at is null) then
      return '{}';
    end if;
    return posthaste.open_places(c);
  end if;
  select max(e.until) into v_until from posthaste.leases e where e.slot = c.slot and e.claim = c.id and e.place is null;
  return array(select o from unnest(posthaste.open_places(c)) o
                where coalesce((select max(e.until) from posthaste.leases e where e.slot = c.slot and e.claim = c.id and e.place = o), v_until) <= clock_timestamp()
                order by o);
end $$;

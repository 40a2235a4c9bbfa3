-- posthaste.check_kinds: notes which kinds of a queue have messages that were set aside, so that
-- claims look at the lanes of those and of no others. A lane is added where a message is set
-- aside; here it is removed once it is empty and the kind is not paused, and added if an entry
-- came to it otherwise.
-- Locks: the queues' settings, if they are free. Updates: queue_settings.
create or replace function posthaste.check_kinds()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  q posthaste.queue_settings;
  v_kinds text[];
begin
  for q in select * from posthaste.queue_settings x where x.kind_lanes <> '{}' and x.dropped_at is null order by x.id loop
    v_kinds := array(
      select k.kind from unnest(q.kind_lanes) with ordinality k (kind, n)
       where k.kind = any (q.kinds_paused) or exists (select from posthaste.subscriptions u
                      cross join lateral posthaste.look(q.id, u.number, array[4 * q.width + k.n::int - 1]) x
                      where u.queue_id = q.id and u.dropped_at is null and (x.ready or x.next_due is not null))
       order by k.n);
    continue when v_kinds = coalesce(q.kinds_aside, '{}');
    perform from posthaste.queue_settings x where x.id = q.id and x.kinds_aside is not distinct from q.kinds_aside for no key update skip locked;
    continue when not found;
    update posthaste.queue_settings x set kinds_aside = nullif(v_kinds, '{}') where x.id = q.id;
    if not v_kinds <@ coalesce(q.kinds_aside, '{}') then
      perform posthaste.ring(q.id);
    end if;
  end loop;
end $$;

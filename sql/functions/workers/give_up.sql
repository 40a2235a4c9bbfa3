-- posthaste.give_up: ends a quarantined claim, one that cannot be rescued: what it holds
-- becomes dead letters, without their content where that cannot be read.
-- Arguments: the claim, as the doctor names it; by: who asked, for the record;
-- unnamed_too: whether to end also what cannot even be named, for rows of the ring are
-- gone: of that only the record is left, posthaste.list_actions.
-- Returns: how many became dead letters, and how many could not be named.
-- Errors: PH409 it is not quarantined, or some cannot be named; PH503 in a copy.
-- Locks: the claim's. Inserts: settlements, outcomes, dead_letter_entries, action_records.
create or replace function posthaste.give_up(claim bigint, by text default session_user, unnamed_too boolean default false, out dead int, out unnamed int)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  c posthaste.claims;
  h posthaste.held_claims;
  d record;
  v_none bit varying;
  v_place int;
  v_ids bigint[] := '{}';
begin
  perform posthaste.refuse_copy();
  dead := 0;
  unnamed := 0;
  select * into c from posthaste.claims where slot = (give_up.claim >> 22) & 15 and id = give_up.claim for no key update;
  select * into h from posthaste.held_claims x where x.claim = give_up.claim and x.tries >= 10;
  if h.claim is null then
    raise exception using errcode = 'PH409', column = 'claim', message = format('claim %s is not quarantined', give_up.claim), hint = 'the doctor names those that are (quarantined)';
  end if;
  v_none := repeat('0', c.places)::bit varying;
  foreach v_place in array posthaste.overdue_places(c) loop
    continue when get_bit(posthaste.settle_claim(c, set_bit(v_none, v_place, 1), v_none, null), v_place) = 0;
    begin
      perform posthaste.finish(c, array[v_place], array['dead'], array[h.error]);
      dead := dead + 1;
    exception when others then
      begin
        select x.pos, x.message_id, x.created_at, x.attempt, x.ord, x.key into d from posthaste.deliveries_at(c, array[v_place]) x;
        insert into posthaste.dead_letter_entries (message_id, subscription, queue_id, lane, pos, ord, attempt, created_at, key, error, story, payload, erased_at)
        values (d.message_id, (c.reader >> 10) & 1023, c.reader >> 20, (c.reader >> 1) & 255, d.pos, d.ord, d.attempt, d.created_at, d.key, left(h.error, 4000), '[]', '', clock_timestamp())
        on conflict do nothing;
        perform posthaste.lane_event(c.reader >> 10, ((c.reader >> 1) & 255)::int, jsonb_build_array(jsonb_build_object('key', d.key, 'stop', d.message_id)), clock_timestamp())
           from posthaste.queue_settings q where q.id = c.reader >> 20 and q.keyed and q.on_dead = 'stop' and d.key is not null;
        dead := dead + 1;
        v_ids := v_ids || d.message_id;
      exception when others then
        if not give_up.unnamed_too then
          raise exception using errcode = 'PH409', column = 'claim',
            message = format('claim %s has deliveries that cannot be named, for rows of the ring are gone: %s', c.id, sqlerrm),
            hint = format('its messages lie between positions %s and %s: send those of the view posthaste.messages anew that must not be lost, and then give up with unnamed_too => true', coalesce(c.first_pos, 0), coalesce(c.last_pos, 0));
        end if;
        unnamed := unnamed + 1;
      end;
    end;
  end loop;
  if not posthaste.claim_open(c) then
    delete from posthaste.held_claims x where x.subscriber = h.subscriber and x.claim = h.claim;
  end if;
  insert into posthaste.action_records (by, action, queue_id, details)
  values (coalesce(give_up.by, session_user), 'give_up', c.reader >> 20,
          jsonb_build_object('claim', c.id, 'error', h.error, 'dead', dead, 'without_content', to_jsonb(v_ids), 'unnamed', unnamed,
                             'from', coalesce(c.first_pos, 0), 'to', coalesce(c.last_pos, 0)));
end $$;

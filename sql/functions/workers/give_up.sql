-- posthaste.give_up: ends a quarantined claim, which crash recovery cannot process: its
-- messages become dead letters, without their content if it cannot be read.
-- Arguments: the claim, as the doctor names it; by: the actor to record; unnamed_too: whether
-- to give up deliveries whose messages are unknown because rows of the ring are gone. Of these
-- only the record is left (posthaste.list_actions).
-- Returns: the number of dead letters, and the number of unknown messages.
-- Errors: PH409 if it is not quarantined, or some messages are unknown; PH503 in a copy.
-- Locks: the claim's. Inserts: notes, settlements, outcomes, dead_letter_entries, action_records.
create or replace function posthaste.give_up(claim bigint, by text default session_user, unnamed_too boolean default false, out dead int, out unnamed int)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_claim posthaste.claims;
  h posthaste.held_claims;
  v_delivery record;
  v_none bit varying;
  v_place int;
  v_ids bigint[] := '{}';
begin
  perform posthaste.refuse_copy();
  dead := 0;
  unnamed := 0;
  select * into v_claim from posthaste.claims where slot = (give_up.claim >> 22) & 15 and id = give_up.claim for no key update;
  select * into h from posthaste.held_claims x where x.claim = give_up.claim and x.tries >= 10;
  if h.claim is null then
    raise exception using errcode = 'PH409', column = 'claim', message = format('claim %s is not quarantined', give_up.claim), hint = 'select * from posthaste.doctor() lists quarantined claims';
  end if;
  v_none := repeat('0', v_claim.places)::bit varying;
  foreach v_place in array posthaste.overdue_places(v_claim) loop
    perform posthaste.close_notes(v_claim, set_bit(v_none, v_place, 1));
    continue when get_bit(posthaste.settle_claim(v_claim, set_bit(v_none, v_place, 1), v_none, null), v_place) = 0;
    begin
      perform posthaste.finish(v_claim, array[v_place], array['dead'], array[h.error]);
      dead := dead + 1;
    exception when others then
      begin
        select x.pos, x.message_id, x.created_at, x.attempt, x.ord, x.key into v_delivery from posthaste.deliveries_at(v_claim, array[v_place]) x;
        insert into posthaste.dead_letter_entries (message_id, subscription, queue_id, lane, pos, ord, attempt, created_at, key, error, story, payload, erased_at)
        values (v_delivery.message_id, (v_claim.reader >> 10) & 1023, v_claim.reader >> 20, (v_claim.reader >> 1) & 255, v_delivery.pos, v_delivery.ord, v_delivery.attempt, v_delivery.created_at, v_delivery.key, left(h.error, 4000), '[]', '', clock_timestamp())
        on conflict do nothing;
        perform posthaste.lane_event(v_claim.reader >> 10, ((v_claim.reader >> 1) & 255)::int, jsonb_build_array(jsonb_build_object('key', v_delivery.key, 'stop', v_delivery.message_id)), clock_timestamp())
           from posthaste.queue_settings q where q.id = v_claim.reader >> 20 and q.keyed and q.on_dead = 'stop' and v_delivery.key is not null;
        dead := dead + 1;
        v_ids := v_ids || v_delivery.message_id;
      exception when others then
        if not give_up.unnamed_too then
          raise exception using errcode = 'PH409', column = 'claim',
            message = format('claim %s has deliveries whose messages are unknown because rows of the ring are gone: %s', v_claim.id, sqlerrm),
            hint = format('its messages have ids between %s and %s: in the view posthaste.messages find those that must not be lost and send them again, then call give_up with unnamed_too => true', coalesce(v_claim.first_pos, 0), coalesce(v_claim.last_pos, 0));
        end if;
        unnamed := unnamed + 1;
      end;
    end;
  end loop;
  if not posthaste.claim_open(v_claim) then
    delete from posthaste.held_claims x where x.subscriber = h.subscriber and x.claim = h.claim;
  end if;
  insert into posthaste.action_records (by, action, queue_id, details)
  values (coalesce(give_up.by, session_user), 'give_up', v_claim.reader >> 20,
          jsonb_build_object('claim', v_claim.id, 'error', h.error, 'dead', dead, 'without_content', to_jsonb(v_ids), 'unnamed', unnamed,
                             'from', coalesce(v_claim.first_pos, 0), 'to', coalesce(v_claim.last_pos, 0)));
end $$;

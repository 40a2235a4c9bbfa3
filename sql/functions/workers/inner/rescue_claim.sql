-- posthaste.rescue_claim: redelivers the unsettled messages of one claim if its holder is gone
-- or its lease is over. One claim per transaction.
-- Arguments: claim id.
-- Returns: the number of lost deliveries; -1 if a settle in progress held some of it, which is
-- left to the next look.
-- Locks: the claim's row, shared with extending; the ends are read under it. All parts are
-- settled in one subtransaction with a lock_timeout of 10 ms. If one is held, each part gets a
-- subtransaction of its own with 5 ms, for 200 ms in total because one settle may hold many. It
-- starts at a random part, so that each has its turn; with such short waits the order of locks
-- does not matter.
create or replace function posthaste.rescue_claim(p_claim bigint)
returns int language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$
declare
  v_claim posthaste.claims;
  v_open int[];
  v_place int;
  v_bits bit varying;
  v_wanted bit varying;
  v_fresh bit varying;
  v_lost int[] := '{}';
  v_held boolean := false;
  v_noted boolean := false;
  v_stop timestamptz;
  v_from int;
begin
  select * into v_claim from posthaste.claims where slot = (p_claim >> 22) & 15 and id = p_claim for no key update skip locked;
  if v_claim.id is null and exists (select from posthaste.claims where slot = (p_claim >> 22) & 15 and id = p_claim) then
    return -1;
  end if;
  if not posthaste.claim_open(v_claim) then
    return 0;
  end if;
  v_open := posthaste.overdue_places(v_claim);
  if cardinality(v_open) = 0 then
    return 0;
  end if;
  if exists (select from posthaste.held_claims h where h.subscriber = v_claim.reader >> 10 and h.claim = v_claim.id and h.tries >= 10) then
    return posthaste.rescue_apart(v_claim, v_open);
  end if;
  v_bits := repeat('0', v_claim.places)::bit varying;
  v_wanted := v_bits;
  foreach v_place in array v_open loop
    v_wanted := set_bit(v_wanted, v_place, 1);
  end loop;
  perform set_config('lock_timeout', '10ms', true);
  begin
    v_noted := posthaste.close_notes(v_claim, v_wanted);
    v_fresh := posthaste.settle_claim(v_claim, v_wanted, v_bits, null);
    v_lost := array(select o from unnest(v_open) o where get_bit(v_fresh, o) = 1 order by o);
  exception when lock_not_available then
    if not v_claim.single then
      return -1;
    end if;
    -- Another session is settling one of them: then one after the other.
    perform set_config('lock_timeout', '5ms', true);
    v_stop := clock_timestamp() + interval '200 milliseconds';
    v_from := floor(random() * cardinality(v_open));
    foreach v_place in array v_open[v_from + 1:] || v_open[:v_from] loop
      exit when v_held and clock_timestamp() > v_stop;
      begin
        v_noted := posthaste.close_notes(v_claim, set_bit(v_bits, v_place, 1)) or v_noted;
        v_fresh := posthaste.settle_claim(v_claim, set_bit(v_bits, v_place, 1), v_bits, null);
        if get_bit(v_fresh, v_place) = 1 then
          v_lost := v_lost || v_place;
        end if;
      exception when lock_not_available then
        v_held := true;
      end;
    end loop;
  end;
  perform set_config('lock_timeout', '100ms', true);
  v_lost := array(select o from unnest(v_lost) o order by o);
  if cardinality(v_lost) > 0 then
    perform posthaste.finish(v_claim, v_lost, array_fill('lost'::text, array[cardinality(v_lost)]), array_fill(
      case when v_claim.holder is null then 'its lease ended before it was settled'
           else format('worker %s was lost while holding it', coalesce((select w.name from posthaste.registrations w where w.id = v_claim.holder), v_claim.holder::text)) end,
      array[cardinality(v_lost)]), p_noted => v_noted);
  elsif v_held then
    return -1;
  end if;
  return cardinality(v_lost);
exception when lock_not_available then
  -- A slot is being truncated, or a settle further on is in progress: nothing of this claim
  -- was rescued, and it will be tried again.
  return -1;
when others then
  -- One claim that cannot be rescued must not stop the rescue of all others. Errors of the server
  -- (connections, conflicts, space, locks, shutdown, disk) may pass. The others are counted:
  -- after ten tries parts of the claim are tried, and the doctor reports it.
  raise warning 'claim % cannot be rescued: % (%)', p_claim, sqlerrm, sqlstate;
  if left(sqlstate, 2) not in ('08', '40', '53', '55', '57', '58') then
    insert into posthaste.held_claims as h (subscriber, claim, next_try, tries, error) values (v_claim.reader >> 10, v_claim.id, clock_timestamp() + interval '1 second', 1, sqlerrm)
    on conflict (subscriber, claim) do update set tries = h.tries + 1, error = excluded.error;
  end if;
  return -1;
end $$;

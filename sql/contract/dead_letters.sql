-- A message that fails permanently is kept with its full story until it is replayed or
-- discarded.
select posthaste.create_queue('contract_dead', '{"max_attempts": 2, "backoff": {"base": "0 seconds", "max": "0 seconds"}}');
select set_config('contract.first', posthaste.send('contract_dead', '{"a": 1}', '{"reference": "r1"}')::text, false);

-- At once by a permanent error, or when the attempts are used up.
select set_config('contract.second', posthaste.send('contract_dead', '2')::text, false);
create temporary table fates (attempt int, outcome text, message_id bigint);
insert into fates select r.attempt, f.outcome, r.message_id from posthaste.receive('contract_dead', 10, '1 hour') r
  cross join lateral posthaste.fail(r.delivery_id, 'broken',
    case when r.message_id = current_setting('contract.first')::bigint then '{"permanent": true}' else '{}' end::jsonb) f;
insert into fates select r.attempt, f.outcome, r.message_id from posthaste.receive('contract_dead', 10, '1 hour') r cross join lateral posthaste.fail(r.delivery_id, 'again') f;
do $$
declare
  d record;
begin
  assert (select array_agg(outcome order by message_id, attempt) from fates) = array['dead', 'retried', 'dead'], format('they became %s', (select array_agg(f) from fates f));
  assert not exists (select from posthaste.receive('contract_dead', 10, '1 hour')), 'a dead message was received';
  select * into strict d from posthaste.dead_letters where message_id = current_setting('contract.second')::bigint;
  assert d.queue = 'contract_dead' and d.error = 'again' and d.attempts = 2 and convert_from(d.payload, 'UTF8') = '2', format('the letter is %s', d);
  assert (select array_agg(x ->> 'error') from jsonb_array_elements(d.story) x) = array['broken', 'again'], format('its story is %s', d.story);
  assert (select state from posthaste.message(d.message_id)) = 'dead', 'its state is another';
end $$;

-- A replayed message continues under its own id, once; a discarded one is removed.
do $$
declare
  v_id bigint := current_setting('contract.first')::bigint;
begin
  assert array(select posthaste.replay(array[v_id, 1, v_id])) = array[v_id], 'not exactly the dead letter was replayed';
  assert array(select posthaste.discard(array[current_setting('contract.second')::bigint])) = array[current_setting('contract.second')::bigint], 'it was not discarded';
  assert not exists (select from posthaste.dead_letters where queue = 'contract_dead'), 'a dead letter is left';
  assert (select (m.state, m.attempts -> 1 ->> 'outcome') = ('discarded', 'dead') from posthaste.message(current_setting('contract.second')::bigint) m), 'it does not show as discarded, or its last attempt not as dead';
  assert (select state from posthaste.messages where message_id = current_setting('contract.second')::bigint) = 'discarded', 'the view shows it otherwise';
  assert (select array_agg(m.message_id) from posthaste.list_messages('contract_dead', state => 'discarded') m) = array[current_setting('contract.second')::bigint]
     and not exists (select from posthaste.list_messages('contract_dead', state => 'dead')), 'it is listed otherwise';
  assert (select state from posthaste.message(v_id)) = 'ready', 'the replayed one is not ready';
  assert (select array_agg(action order by id) from posthaste.actions where message_id in (v_id, current_setting('contract.second')::bigint)) = array['replay', 'discard'], 'the actor was not recorded';
end $$;
do $$
declare
  r record;
begin
  select * into strict r from posthaste.receive('contract_dead', 10, '1 hour');
  assert r.message_id = current_setting('contract.first')::bigint and r.attempt = 2 and r.reference = 'r1' and r.payload_json = '{"a": 1}', format('it came back as %s', r);
  assert (select settled from posthaste.ack(array[r.delivery_id])), 'it was not settled';
end $$;
drop table fates;
select posthaste.drop_queue('contract_dead');

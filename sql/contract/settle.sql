-- Each delivery is settled once, by the first caller; later callers get false.
select posthaste.create_queue('contract_settle', '{"max_attempts": 3}');
select from posthaste.send_many('contract_settle', '[{"payload": 0}, {"payload": 1}, {"payload": 2}, {"payload": 3}]');
create temporary table got as select delivery_id, message_id, payload_json::int as n from posthaste.receive('contract_settle', 10, '1 hour');

-- Received messages belong to one caller.
do $$
begin
  assert (select count(*) = 4 from got), 'four messages were sent';
  assert not exists (select from posthaste.receive('contract_settle', 10, '1 hour')), 'a message was received twice';
end $$;

-- ack: done, with the receipt of another system; not twice, and no other outcome afterwards.
do $$
declare
  d bigint := (select delivery_id from got where n = 0);
begin
  assert (select settled from posthaste.ack(array[d], '{"receipts": [{"id": "x1"}]}')), 'it was not settled';
  assert not (select settled from posthaste.ack(array[d])), 'it was settled twice';
  assert not (select settled from posthaste.fail(d, 'no')), 'it failed after it was done';
  assert not (select settled from posthaste.release(array[d])), 'it was released after it was done';
  assert not (select settled from posthaste.extend(array[d], '1 hour')), 'it was extended after it was done';
end $$;
do $$
declare
  m record;
begin
  select x.* into m from got g cross join lateral posthaste.message(g.message_id) x where g.n = 0;
  assert m.state = 'done', format('its state is %s', m.state);
  assert jsonb_array_length(m.attempts) = 1 and m.attempts -> 0 @> '{"attempt": 1, "outcome": "done", "receipt": {"id": "x1"}}', format('its story is %s', m.attempts);
end $$;

-- Several ids: one result each, in ascending order, also for ids that never existed.
do $$
begin
  assert (select array_agg(settled order by delivery_id) from posthaste.ack(array[(select delivery_id from got where n = 1), 4096, 4096])) = array[false, true],
    'one of the two results is wrong';
end $$;

-- strict: all or nothing.
do $$
begin
  perform from posthaste.ack((select array_agg(delivery_id) from got where n in (1, 2)), '{"strict": true}');
  assert false, 'a delivery that was settled before was accepted in strict form';
exception when sqlstate 'PH409' then
  null;
end $$;

-- In the caller's transaction: undone with it.
begin;
select from posthaste.ack(array[(select delivery_id from got where n = 2)], '{"strict": true}');
rollback;

-- release: available to all callers at once, and the attempt does not count.
do $$
begin
  assert (select settled from posthaste.release(array[(select delivery_id from got where n = 2)])), 'it was not released';
end $$;
do $$
declare
  r record;
begin
  select * into strict r from posthaste.receive('contract_settle', 10, '1 hour');
  assert r.attempt = 1 and r.message_id = (select message_id from got where n = 2), 'the released message did not come back unchanged';
  assert (select settled from posthaste.ack(array[r.delivery_id])), 'it was not settled';
end $$;

-- release with after: not before that, still as the same attempt.
begin;
do $$
declare
  d bigint := (select delivery_id from got where n = 3);
  m record;
begin
  assert (select settled from posthaste.release(array[d], '{"after": "1 hour"}')), 'it was not released for later';
  select state, due_at, attempts into m from posthaste.message((select message_id from got where n = 3));
  assert m.state = 'scheduled' and m.due_at between clock_timestamp() + '59 minutes' and clock_timestamp() + '61 minutes' and m.attempts = '[]',
    format('it became %s', m);
end $$;
rollback;

-- fail: again later, as the next attempt.
do $$
declare
  f record;
begin
  select * into f from posthaste.fail((select delivery_id from got where n = 3), 'it broke', '{"retry_after": "1 hour"}');
  assert f.settled and f.outcome = 'retried' and f.due_at between clock_timestamp() + '59 minutes' and clock_timestamp() + '61 minutes', format('it became %s', f);
end $$;
do $$
declare
  m record;
begin
  assert not exists (select from posthaste.receive('contract_settle', 10, '1 hour')), 'a retry came before its time';
  select x.* into m from got g cross join lateral posthaste.message(g.message_id) x where g.n = 3;
  assert m.state = 'retrying' and m.attempts -> 0 @> '{"outcome": "retried", "error": "it broke"}', format('it is %s, %s', m.state, m.attempts);
end $$;
drop table got;
select posthaste.drop_queue('contract_settle');

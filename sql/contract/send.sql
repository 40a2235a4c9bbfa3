-- A message arrives unchanged, once, and only if its transaction commits.
select posthaste.create_queue('contract_send');

-- In the caller's transaction: a rollback removes the message.
begin;
select posthaste.send('contract_send', '"rolled back"');
rollback;
do $$
begin
  assert not exists (select from posthaste.receive('contract_send', 10, '1 minute')), 'a message was received that was rolled back';
end $$;

-- All options of a message are returned.
select set_config('contract.id', posthaste.send('contract_send', E'{"n": 9007199254740993, "s": "\\u00e9"}',
  '{"key": "ada", "kind": "greeting", "reference": "order 7", "headers": {"h": "v"}, "terms": ["x", "y"]}')::text, false);
create temporary table got as select * from posthaste.receive('contract_send', 10, '1 minute');
do $$
declare
  g record;
begin
  assert (select count(*) = 1 from got), 'one message was sent, and another number received';
  select * into g from got;
  assert g.message_id = current_setting('contract.id')::bigint, 'the id is not the one that sending returned';
  assert g.payload_json = '{"n": 9007199254740993, "s": "é"}', 'the payload changed';
  assert (g.key, g.kind, g.reference, g.attempt, g.content_type) = ('ada', 'greeting', 'order 7', 1, 'application/json'), 'a field changed';
  assert g.headers = '{"h": "v"}' and g.due_at is null, 'headers or due time changed';
end $$;
select from posthaste.ack(array(select delivery_id from got));
drop table got;

-- Bytes arrive byte for byte.
select posthaste.send_bytes('contract_send', decode('00ff0a', 'hex'), '{"content_type": "image/x"}');
do $$
declare
  g record;
begin
  select * into strict g from posthaste.receive('contract_send', 10, '1 minute');
  assert g.payload = decode('00ff0a', 'hex') and g.payload_json is null and g.content_type = 'image/x', 'bytes changed';
end $$;

-- Many at once, in order; common options are the defaults of each message.
create temporary table ids as select * from posthaste.send_many('contract_send',
  '[{"payload": 1}, {"payload": 2, "kind": "own"}, {"payload": 3}]', '{"kind": "common"}') with ordinality as i (id, n);
do $$
begin
  assert (select array_agg(r.payload_json::text || ' ' || r.kind order by i.n) = array['1 common', '2 own', '3 common']
            from posthaste.receive('contract_send', 10, '1 minute') r join ids i on i.id = r.message_id), 'send_many sent something else';
end $$;
drop table ids;

-- Numbers in the range of a double, and strings of many digits, are accepted.
select posthaste.send('contract_send', '["1e400", 1.7e308, 5e-324, 0]');
select posthaste.send_bytes('contract_send', convert_to('[-1.7e308]', 'UTF8'), '{"content_type": "Application/JSON; charset=utf-8"}');
select posthaste.send('contract_send', to_jsonb(repeat('7', 400)));
do $$
begin
  assert (select count(*) = 3 from posthaste.receive('contract_send', 10, '1 minute')), 'a valid payload was not sent';
end $$;

-- Scheduled messages wait.
select posthaste.send('contract_send', '1', '{"delay": "1 hour"}');
select posthaste.send('contract_send', '2', '{"send_at": "2999-01-01T00:00:00Z"}');
select posthaste.send('contract_send', '3', '{"send_at": "1999-01-01T00:00:00Z"}');
do $$
begin
  assert (select array_agg(r.payload_json::text) = array['3'] from posthaste.receive('contract_send', 10, '1 minute') r),
    'not exactly the message whose time has come was received';
end $$;
select posthaste.drop_queue('contract_send');

-- A message whose lease ends is received by another caller; extending the lease prevents that.
-- SQL alone is enough: receiving also rescues.
select posthaste.create_queue('contract_leases');
select from posthaste.send_many('contract_leases', '[{"payload": 1}, {"payload": 2}]');
create temporary table got as select delivery_id, message_id from posthaste.receive('contract_leases', 10, '200 milliseconds');
do $$
begin
  assert (select settled from posthaste.extend(array[(select max(delivery_id) from got)], '1 hour')), 'it was not extended';
end $$;
select pg_sleep(0.25);
-- Rescued by one call, received by the next.
select from posthaste.receive('contract_leases', 10, '1 hour');
create temporary table again as select delivery_id, message_id, attempt, story from posthaste.receive('contract_leases', 10, '1 hour');
do $$
declare
  a record;
begin
  select * into strict a from again;
  assert a.message_id = (select message_id from got order by delivery_id limit 1) and a.attempt = 2, format('received %s', a);
  assert a.story -> 0 ->> 'outcome' = 'lost', format('its story is %s', a.story);
  -- The late acknowledgement returns false; the extended delivery still belongs to its holder.
  assert (select array_agg(settled order by delivery_id) from posthaste.ack(array(select delivery_id from got))) = array[false, true], 'the late settle has a wrong result';
end $$;
drop table got, again;
select posthaste.drop_queue('contract_leases');

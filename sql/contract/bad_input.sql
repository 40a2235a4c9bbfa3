-- Bad input fails with the code and the field, and nothing is stored.
select posthaste.create_queue('contract_bad', '{"max_payload": 100}');
-- A queue from a time when these options were allowed: creating it again does not fail.
select posthaste.create_queue('contract_old');
update posthaste.queue_settings set backoff_base = '2 hours', timeout = '400 days' where name = 'contract_old';

select posthaste.create_queue('contract_wide');

create temporary table cases (statement text, code text, field text);
insert into cases values
  ('select posthaste.send(''nowhere'', ''1'')', 'PH404', 'queue'),
  -- A URL's path cannot contain such a part.
  ('select posthaste.create_queue(''.'')', 'PH400', 'name'),
  ('select posthaste.create_queue(''..'')', 'PH400', 'name'),
  ('select posthaste.subscribe(''contract_bad'', ''..'')', 'PH400', 'subscription'),
  ('select posthaste.schedule_put(''..'', ''contract_bad'', ''@daily'')', 'PH400', 'name'),
  ('select posthaste.send(null, ''1'')', 'PH404', 'queue'),
  ('select posthaste.create_queue(''contract_old'', ''{"backoff": {"base": "2 hours"}, "timeout": "400 days"}'')', 'none', ''),
  ('select posthaste.create_queue(''contract_old'', ''{"backoff": {"base": "3 hours"}}'')', 'PH400', 'backoff'),
  ('select posthaste.send(''contract_bad'', null)', 'PH400', 'payload'),
  ('select posthaste.send(''contract_bad'', ''1'', ''{"backoff": {"base": "infinity"}}'')', 'PH400', 'base'),
  ('select posthaste.send(''contract_bad'', to_jsonb(repeat(''x'', 99)))', 'PH413', 'payload'),
  ('select posthaste.send(''contract_bad'', ''{'')', '22P02', ''),
  ('select posthaste.send(''contract_bad'', (''"'' || chr(92) || ''u0000"'')::jsonb)', '22P05', ''),
  ('select posthaste.send_bytes(''contract_bad'', decode(''7b'', ''hex''), ''{"content_type": "application/json"}'')', 'PH400', 'payload'),
  ('select posthaste.send_bytes(''contract_bad'', decode(''ff'', ''hex''), ''{"content_type": "application/json"}'')', 'PH400', 'payload'),
  ('select posthaste.send_bytes(''contract_bad'', decode(''7b'', ''hex''), ''{"content_type": " Application/JSON ; charset=utf-8"}'')', 'PH400', 'payload'),
  ('select posthaste.send_bytes(''contract_bad'', decode(''7b'', ''hex''), ''{"content_type": "application/problem+json"}'')', 'PH400', 'payload'),
  ('select posthaste.send_bytes(''contract_wide'', ''1e400'', ''{"content_type": "application/json"}'')', 'PH400', 'payload'),
  ('select posthaste.send(''contract_wide'', ''[1, {"a": 1e400}]'')', 'PH400', 'payload'),
  ('select posthaste.send(''contract_wide'', ''-1e-400'')', 'PH400', 'payload'),
  ('select posthaste.send(''contract_wide'', ''1e131000'')', 'PH400', 'payload'),
  ('select posthaste.send_many(''contract_wide'', ''[{"payload": 1}, {"payload": 1e309}]'')', 'PH400', 'payload'),
  ('select posthaste.schedule_put(''contract_wide'', ''contract_wide'', ''@daily'', ''1e400'')', 'PH400', 'payload'),
  ('select posthaste.send_bytes(''contract_bad'', convert_to(repeat(''x'', 101), ''UTF8''))', 'PH413', 'payload'),
  ('select posthaste.send_many(''contract_bad'', ''{}'')', 'PH400', 'messages'),
  ('select posthaste.send_many(''contract_bad'', ''[1]'')', 'PH400', 'messages'),
  ('select posthaste.send_many(''contract_bad'', ''[{"key": "a"}]'')', 'PH400', 'messages'),
  ('select posthaste.send_many(''contract_bad'', ''[{"payload": 1}, {"payload": 2, "color": 1}]'')', 'PH400', 'color'),
  ('select posthaste.send_many(''contract_bad'', ''[{"payload": 1, "wake": false}]'')', 'PH400', 'wake'),
  ('select posthaste.send_many(''nowhere'', ''[{"payload": 1}]'')', 'PH404', 'queue'),
  ('select from posthaste.receive(''nowhere'', 1, ''1 minute'')', 'PH404', 'queue'),
  ('select from posthaste.receive(''contract_bad'', 1, ''1 minute'', ''{"subscription": "none"}'')', 'PH404', 'subscription'),
  ('select from posthaste.receive(''contract_bad'', 1, ''1 minute'', ''{"subscription": 1}'')', 'PH400', 'subscription'),
  ('select from posthaste.receive(''contract_bad'', 1, ''1 minute'', ''{"wait": "1 s"}'')', 'PH400', 'wait'),
  ('select from posthaste.receive(''contract_bad'', 0, ''1 minute'')', 'PH400', 'max'),
  ('select from posthaste.receive(''contract_bad'', 1001, ''1 minute'')', 'PH400', 'max'),
  ('select from posthaste.receive(''contract_bad'', null, ''1 minute'')', 'PH400', 'max'),
  ('select from posthaste.receive(''contract_bad'', 1, ''0'')', 'PH400', 'lease'),
  ('select from posthaste.receive(''contract_bad'', 1, ''-1 minute'')', 'PH400', 'lease'),
  ('select from posthaste.receive(''contract_bad'', 1, ''13 hours'')', 'PH400', 'lease'),
  ('select from posthaste.ack(null)', 'PH400', 'delivery_ids'),
  ('select from posthaste.ack(''{1,null}'')', 'PH400', 'delivery_ids'),
  ('select from posthaste.ack(''{4096}'', ''{"receipts": [1, 2]}'')', 'PH400', 'receipts'),
  ('select from posthaste.ack(''{4096}'', ''{"receipts": 1}'')', 'PH400', 'receipts'),
  ('select from posthaste.ack(''{4096}'', ''{"strict": "yes"}'')', 'PH400', 'strict'),
  ('select from posthaste.ack(''{4096}'', ''{"force": true}'')', 'PH400', 'force'),
  ('select from posthaste.ack(''{4096}'', ''{"strict": true}'')', 'PH409', ''),
  ('select from posthaste.release(null)', 'PH400', 'delivery_ids'),
  ('select from posthaste.ack(''{{4096},{4097}}'')', 'PH400', 'delivery_ids'),
  ('select from posthaste.release(''{{4096},{4097}}'')', 'PH400', 'delivery_ids'),
  ('select from posthaste.extend(''{{4096},{4097}}'', ''1 minute'')', 'PH400', 'delivery_ids'),
  ('select from posthaste.replay(''{{4096},{4097}}'')', 'PH400', 'message_ids'),
  ('select from posthaste.discard(''{{4096},{4097}}'')', 'PH400', 'message_ids'),
  ('select from posthaste.list_dead_letters(message_ids => ''{{4096},{4097}}'')', 'PH400', 'message_ids'),
  ('select posthaste.token_add(''bad'', ''{{send},{receive}}'')', 'PH400', 'scopes'),
  ('select from posthaste.ack(''{4096}'', ''{"receipts": [1e131000]}'')', 'PH400', 'receipts'),
  ('select from posthaste.fail(4096, ''e'', ''{"receipt": {"a": -1e400}}'')', 'PH400', 'receipt'),
  ('select from posthaste.fail(4096, E'' \t\n'')', 'PH400', 'error'),
  ('select from posthaste.release(''{4096}'', ''{"receipts": []}'')', 'PH400', 'receipts'),
  ('select from posthaste.release(''{4096}'', ''{"strict": true}'')', 'PH409', ''),
  ('select from posthaste.release(''{4096}'', ''{"after": "-1 s"}'')', 'PH400', 'after'),
  ('select from posthaste.release(''{4096}'', ''{"after": "290000 years"}'')', 'PH400', 'after'),
  ('select from posthaste.fail(null, ''e'')', 'PH400', 'delivery_ids'),
  ('select from posthaste.fail(4096, null)', 'PH400', 'error'),
  ('select from posthaste.fail(4096, '' '')', 'PH400', 'error'),
  ('select from posthaste.fail(4096, ''e'', ''{"retry_after": "soon"}'')', 'PH400', 'retry_after'),
  ('select from posthaste.fail(4096, ''e'', ''{"retry_after": "-1 s"}'')', 'PH400', 'retry_after'),
  ('select from posthaste.fail(4096, ''e'', ''{"retry_after": "170000000 years"}'')', 'PH400', 'retry_after'),
  ('select from posthaste.fail(4096, ''e'', ''{"retry_after": "290000 years"}'')', 'PH400', 'retry_after'),
  ('select from posthaste.fail(4096, ''e'', ''{"permanent": 1}'')', 'PH400', 'permanent'),
  ('select from posthaste.fail(4096, ''e'', ''{"permanent": true, "retry_after": "1 hour"}'')', 'PH400', 'retry_after'),
  ('select from posthaste.fail(4096, ''e'', ''{"strict": true}'')', 'PH409', ''),
  ('select from posthaste.extend(''{4096}'', ''0'')', 'PH400', 'lease'),
  ('select from posthaste.extend(''{4096}'', ''13 hours'')', 'PH400', 'lease'),
  ('select from posthaste.extend(''{4096}'', null)', 'PH400', 'lease'),
  ('select from posthaste.extend(null, ''1 minute'')', 'PH400', 'delivery_ids'),
  ('select from posthaste.extend(''{4096}'', ''1 minute'', ''{"strict": true}'')', 'PH409', ''),
  ('select from posthaste.message(null)', 'PH400', 'id'),
  ('select from posthaste.message(1)', 'PH404', 'id'),
  ('select posthaste.replay(null)', 'PH400', 'message_ids'),
  ('select posthaste.replay(array_fill(1::bigint, array[10001]))', 'PH400', 'message_ids'),
  ('select posthaste.discard(''{null}'')', 'PH400', 'message_ids'),
  ('select from posthaste.list_messages(queue => ''nowhere'')', 'PH404', 'queue'),
  ('select from posthaste.list_messages(max => 0)', 'PH400', 'limit'),
  ('select from posthaste.list_dead_letters(''{"queue": "nowhere"}'')', 'PH404', 'queue'),
  ('select from posthaste.list_dead_letters(max => 1001)', 'PH400', 'limit'),
  ('select from posthaste.list_dead_letters(''{"color": "red"}'')', 'PH400', 'color'),
  ('select from posthaste.list_dead_letters(''{"error": 1}'')', 'PH400', 'error'),
  ('select from posthaste.list_dead_letters(''{"subscription": "a"}'')', 'PH400', 'subscription'),
  ('select from posthaste.list_dead_letters(''{"queue": "contract_bad", "subscription": "missing"}'')', 'PH404', 'subscription'),
  ('select from posthaste.list_dead_letters(''{"died_from": "soon"}'')', 'PH400', 'died_from'),
  ('select from posthaste.list_dead_letters(''{"died_before": "soon"}'')', 'PH400', 'died_before'),
  ('select from posthaste.list_dead_letters(''{"died_from": ""}'')', 'PH400', 'died_from'),
  ('select from posthaste.list_dead_letters(''{"queue": "contract_bad", "subscription": ""}'')', 'PH400', 'subscription'),
  ('select posthaste.replay(''{1}'')', 'PH404', 'message_ids'),
  ('select posthaste.discard(''{1,2,3}'')', 'PH404', 'message_ids'),
  ('select posthaste.replay(''{}'')', 'none', ''),
  ('select posthaste.discard(filter => ''{"queue": "contract_bad"}'')', 'none', ''),
  ('select posthaste.replay()', 'PH400', 'message_ids'),
  ('select posthaste.replay(''{1}'', filter => ''{}'')', 'PH400', 'filter'),
  ('select posthaste.replay(filter => ''{"queue": "nowhere"}'')', 'PH404', 'queue'),
  ('select posthaste.replay(filter => ''{}'')', 'PH400', 'filter'),
  ('select posthaste.discard(filter => ''{}'')', 'PH400', 'filter'),
  ('select posthaste.discard(filter => ''null'')', 'PH400', 'options'),
  ('select posthaste.discard(filter => ''{"all": false}'')', 'PH400', 'all'),
  ('select posthaste.discard(filter => ''{"all": true, "queue": "contract_bad"}'')', 'PH400', 'all'),
  ('select posthaste.discard(filter => ''{"all": true}'', before => 1)', 'none', ''),
  ('select from posthaste.list_messages('''')', 'PH400', 'queue'),
  ('select from posthaste.list_messages(reference => '''')', 'PH400', 'reference'),
  ('select from posthaste.list_messages(term => '''')', 'PH400', 'term'),
  ('select from posthaste.list_messages(key => '''')', 'PH400', 'key'),
  ('select from posthaste.list_messages(state => '''')', 'PH400', 'state'),
  ('select from posthaste.list_actions(queue => '''')', 'PH404', 'queue'),
  ('select posthaste.replay(filter => ''{}'', max => 0)', 'PH400', 'limit'),
  ('select posthaste.discard(filter => ''{"color": "red"}'')', 'PH400', 'color'),
  ('select posthaste.discard(filter => ''{"queue": ""}'')', 'PH400', 'queue'),
  ('select posthaste.discard(filter => ''{"queue": null}'')', 'PH400', 'queue'),
  ('select posthaste.replay(filter => ''{"queue": "contract_bad", "reference": ""}'')', 'PH400', 'reference'),
  ('select posthaste.discard(filter => ''{}'', max => 10001)', 'PH400', 'limit'),
  ('select posthaste.update_queue(''nowhere'', ''{}'')', 'PH404', 'queue'),
  ('select posthaste.update_queue(''contract_bad'', ''{"fair": true}'')', 'PH501', 'fair'),
  ('select posthaste.update_queue(''contract_bad'', ''{"concurrency": 0}'')', 'PH400', 'concurrency'),
  ('select posthaste.update_queue(''contract_bad'', ''{"key_rate_limit": {"limit": 1}}'')', 'PH501', 'key_rate_limit'),
  ('select posthaste.pause_key(''nowhere'', ''a'')', 'PH404', 'queue'),
  ('select posthaste.pause_key(''contract_bad'', ''a'')', 'PH501', 'queue'),
  ('select posthaste.pause_key(''contract_bad'', '''')', 'PH400', 'key'),
  ('select posthaste.resume_key(''contract_bad'', repeat(''k'', 256))', 'PH413', 'key'),
  ('select from posthaste.list_actions(queue => ''nowhere'')', 'PH404', 'queue'),
  ('select from posthaste.list_actions(max => 0)', 'PH400', 'limit'),
  ('select from posthaste.erase(null)', 'PH400', 'term'),
  ('select from posthaste.erase('''')', 'PH400', 'term'),
  ('select from posthaste.erase(repeat(''x'', 256))', 'PH413', 'term'),
  ('select from posthaste.erase(''x'', max => 0)', 'PH400', 'limit'),
  ('select posthaste.create_queue(''contract_other'', ''{"retention": "0"}'')', 'PH400', 'retention'),
  ('select posthaste.create_queue(''contract_other'', ''{"retention": "200 years"}'')', 'PH400', 'retention'),
  ('select posthaste.create_queue(''contract_other'', ''{"retention": 7}'')', 'PH400', 'retention'),
  ('select posthaste.create_queue(''contract_other'', ''{"retain_payload": true}'')', 'PH400', 'retain_payload'),
  ('select posthaste.subscribe(''contract_bad'', ''s'', ''{"filter": {"kind": ""}}'')', 'PH400', 'filter'),
  ('select posthaste.subscribe(''contract_bad'', ''s'', ''{"filter": {"kind": ["a", ""]}}'')', 'PH400', 'filter'),
  ('select posthaste.subscribe(''contract_bad'', ''s'', ''{"max_lag": "200 years"}'')', 'PH400', 'max_lag'),
  ('select posthaste.drop_queue(''nowhere'')', 'PH404', 'queue'),
  ('select posthaste.pause_queue(''nowhere'')', 'PH404', 'queue'),
  ('select posthaste.resume_queue(''nowhere'')', 'PH404', 'queue'),
  ('select posthaste.create_queue(null)', 'PH400', 'name'),
  ('select posthaste.create_queue(''Upper'')', 'PH400', 'name'),
  ('select posthaste.create_queue('''')', 'PH400', 'name'),
  ('select posthaste.create_queue(repeat(''q'', 64))', 'PH400', 'name'),
  ('select posthaste.create_queue(''contract_bad'', ''{"timeout": "1 hour"}'')', 'PH409', 'name');
insert into cases
select format('select posthaste.send(''contract_bad'', ''1'', %L)', o.options), o.code, o.field
  from (values
    ('[]', 'PH400', 'options'), ('{"color": "red"}', 'PH400', 'color'), ('{"priority": 4}', 'PH400', 'priority'), ('{"priority": -1}', 'PH400', 'priority'),
    ('{"priority": "high"}', 'PH400', 'priority'), ('{"dedupe_key": 1}', 'PH400', 'dedupe_key'), ('{"dedupe_window": "1 day"}', 'PH400', 'dedupe_window'),
    ('{"dedupe_key": "x", "dedupe_window": "0"}', 'PH400', 'dedupe_window'), ('{"dedupe_key": "x", "dedupe_window": "366 days"}', 'PH400', 'dedupe_window'),
    (jsonb_build_object('dedupe_key', repeat('k', 256))::text, 'PH413', 'dedupe_key'),
    ('{"key": 1}', 'PH400', 'key'), ('{"kind": {}}', 'PH400', 'kind'), ('{"reference": true}', 'PH400', 'reference'), ('{"content_type": 1}', 'PH400', 'content_type'),
    ('{"headers": []}', 'PH400', 'headers'), ('{"headers": {"a": 1}}', 'PH400', 'headers'), ('{"terms": "x"}', 'PH400', 'terms'), ('{"terms": [1]}', 'PH400', 'terms'),
    ('{"delay": 5}', 'PH400', 'delay'), ('{"delay": "soon"}', 'PH400', 'delay'), ('{"delay": "-1 second"}', 'PH400', 'delay'),
    ('{"delay": "infinity"}', 'PH400', 'delay'), ('{"delay": "1000000 years"}', 'PH400', 'delay'),
    ('{"send_at": 5}', 'PH400', 'send_at'), ('{"send_at": "soonish"}', 'PH400', 'send_at'),
    ('{"delay": "1 s", "send_at": "2999-01-01T00:00:00Z"}', 'PH400', 'send_at'), ('{"wake": "yes"}', 'PH400', 'wake'),
    (jsonb_build_object('key', repeat('k', 256))::text, 'PH413', 'key'), (jsonb_build_object('kind', repeat('k', 256))::text, 'PH413', 'kind'),
    (jsonb_build_object('reference', repeat('é', 128))::text, 'PH413', 'reference'), (jsonb_build_object('content_type', repeat('k', 256))::text, 'PH413', 'content_type'),
    (jsonb_build_object('terms', jsonb_build_array(repeat('k', 256)))::text, 'PH413', 'terms'),
    (jsonb_build_object('headers', jsonb_build_object('h', repeat('k', 30000)))::text, 'PH413', 'headers')) o (options, code, field);
insert into cases
select format(f.call, d.delay), 'PH400', 'delay'
  from (values ('NaN'), ('Infinity'), ('-Infinity'), ('-0.001'), ('9.1e12'), ('1e15'), ('1e308')) d (delay)
 cross join (values
    ('select posthaste.send_row(''contract_bad'', ''1'', null, null, null, null, null, null, %L, null, null, true)'),
    ('select posthaste.send_rows(''{contract_bad,contract_bad}'', ''{1,2}'', null, null, null, null, null, null, array[null, %L]::double precision[], null, null, true)')) f (call);
insert into cases
select format('select posthaste.create_queue(''contract_new'', %L)', o.options), o.code, o.field
  from (values
    ('[]', 'PH400', 'options'), ('{"color": 1}', 'PH400', 'color'), ('{"ordered": 1}', 'PH400', 'ordered'), ('{"on_dead": "stop"}', 'PH400', 'on_dead'), ('{"ordered": true, "on_dead": "x"}', 'PH400', 'on_dead'),
    ('{"ordered": true, "key_concurrency": 2}', 'PH400', 'key_concurrency'), ('{"key_concurrency": 0}', 'PH400', 'key_concurrency'),
    ('{"ordered": true, "mode": "at_most_once"}', 'PH400', 'mode'), ('{"key_concurrency": 2, "mode": "at_most_once"}', 'PH400', 'mode'),
    ('{"concurrency": 0}', 'PH400', 'concurrency'), ('{"concurrency": 1.5}', 'PH400', 'concurrency'), ('{"concurrency": 100001}', 'PH400', 'concurrency'), ('{"fair": 1}', 'PH400', 'fair'),
    ('{"rate_limit": 5}', 'PH400', 'rate_limit'), ('{"rate_limit": {}}', 'PH400', 'rate_limit'), ('{"rate_limit": {"limit": null}}', 'PH400', 'rate_limit'), ('{"rate_limit": {"limit": 0}}', 'PH400', 'rate_limit'),
    ('{"rate_limit": {"limit": -1}}', 'PH400', 'rate_limit'), ('{"rate_limit": {"limit": 1, "per": "0"}}', 'PH400', 'rate_limit'), ('{"rate_limit": {"limit": 1, "per": "400 days"}}', 'PH400', 'rate_limit'),
    ('{"rate_limit": {"limit": 1, "burst": 0}}', 'PH400', 'rate_limit'), ('{"key_rate_limit": {"limit": 1, "color": 1}}', 'PH400', 'key_rate_limit'), ('{"key_rate_limit": "fast"}', 'PH400', 'key_rate_limit'),
    ('{"concurrency": 2, "key_concurrency": 3}', 'PH400', 'key_concurrency'), ('{"rate_limit": {"limit": 1}, "key_rate_limit": {"limit": 2}}', 'PH400', 'key_rate_limit'),
    ('{"ordered": true, "fair": true}', 'PH400', 'fair'), ('{"mode": "at_most_once", "concurrency": 2}', 'PH400', 'concurrency'), ('{"mode": "at_most_once", "fair": true, "key_concurrency": 2}', 'PH400', 'mode'),
    ('{"max_attempts": 0}', 'PH400', 'max_attempts'), ('{"max_attempts": 1.5}', 'PH400', 'max_attempts'), ('{"max_attempts": "3"}', 'PH400', 'max_attempts'),
    ('{"mode": "twice"}', 'PH400', 'mode'), ('{"mode": "at_most_once", "max_attempts": 3}', 'PH400', 'max_attempts'),
    ('{"mode": "at_most_once", "backoff": {}}', 'PH400', 'backoff'),
    ('{"lanes": 65}', 'PH400', 'lanes'), ('{"timeout": "0"}', 'PH400', 'timeout'), ('{"timeout": 30}', 'PH400', 'timeout'),
    ('{"max_payload": 33554433}', 'PH400', 'max_payload'), ('{"backoff": 1}', 'PH400', 'backoff'), ('{"backoff": {"base": "x"}}', 'PH400', 'base'), ('{"backoff": {"base": "infinity"}}', 'PH400', 'base'),
    ('{"backoff": {"base": "2 hours"}}', 'PH400', 'backoff'), ('{"backoff": {"base": "2 seconds", "max": "1 second"}}', 'PH400', 'backoff'), ('{"backoff": {"max": "366 days"}}', 'PH400', 'backoff'),
    ('{"timeout": "366 days"}', 'PH400', 'timeout'), ('{"backoff": {"factor": 2}}', 'PH400', 'factor')) o (options, code, field);

do $$
declare
  c record;
  v_code text;
  v_field text;
  v_text text;
  v_wrong text := '';
begin
  for c in select * from cases loop
    v_code := 'none';
    v_field := '';
    begin
      execute c.statement;
    exception when others then
      get stacked diagnostics v_code = returned_sqlstate, v_field = column_name, v_text = message_text;
    end;
    if (v_code, v_field) is distinct from (c.code, c.field) then
      v_wrong := v_wrong || format(E'\n%s: %s %L, want %s %L (%s)', left(c.statement, 120), v_code, v_field, c.code, c.field, v_text);
    end if;
  end loop;
  assert v_wrong = '', v_wrong;
  assert not exists (select from posthaste.entries e join posthaste.queue_settings q on q.id = e.queue_id where q.name = 'contract_bad'), 'something was sent';
  assert not exists (select from posthaste.queue_settings where name = 'contract_new'), 'a queue was created';
end $$;
drop table cases;

-- With many messages, the error names the invalid one by its number, from 1.
do $$
declare
  c record;
  v_text text;
  v_hint text;
begin
  for c in select * from (values ('{"payload": 2, "color": 1}', 'known: key,%'), ('{"payload": 2, "delay": "soon"}', '%'), ('{"key": "a"}', ''), ('7', ''),
                                 ('{"payload": 2, "priority": 7}', ''), (format('{"payload": 2, "key": "%s"}', repeat('k', 256)), '')) m (second, hint) loop
    v_text := 'none';
    begin
      perform posthaste.send_many('contract_bad', format('[{"payload": 1}, %s, {"payload": 3}]', c.second)::jsonb);
    exception when others then
      get stacked diagnostics v_text = message_text, v_hint = pg_exception_hint;
    end;
    assert v_text ~ 'message 2( of 3: |[)])' and v_hint like c.hint, format('%s: %s, hint %L', left(c.second, 60), v_text, v_hint);
  end loop;
end $$;

-- Ids of another caller's deliveries, or of deliveries that never existed, settle nothing, and
-- nothing is recorded.
do $$
begin
  assert not exists (select from posthaste.ack('{1, 4096, 9223372036854775807}') a where a.settled), 'a delivery that never existed was settled';
  assert not exists (select from posthaste.fail(4096, 'e') f where f.settled), 'a delivery that never existed failed';
  assert not exists (select from posthaste.release('{4096}') r where r.settled), 'a delivery that never existed was released';
  assert not exists (select from posthaste.extend('{4096}', '1 minute') e where e.settled), 'a delivery that never existed was extended';
  assert not exists (select from posthaste.settlements s where s.claim in (0, 1)), 'a settlement of nothing was recorded';
end $$;
select posthaste.drop_queue('contract_bad');

select posthaste.drop_queue('contract_old');

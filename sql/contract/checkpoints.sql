-- A checkpoint is handed to the next attempt, and refused when the delivery has ended.
select posthaste.create_queue('contract_checkpoints');
select posthaste.send('contract_checkpoints', '1') as id;
create temporary table got as select delivery_id, message_id, checkpoint from posthaste.receive('contract_checkpoints', 1, '1 hour');
do $$
declare
  d bigint := (select delivery_id from got);
  a record;
begin
  assert (select checkpoint from got) is null, 'the first attempt has a checkpoint';
  assert posthaste.checkpoint(d, '1'), 'it was not stored';
  assert posthaste.checkpoint(d, '{"row": 700}', '{"lease": "1 hour"}'), 'it was not stored with a lease';
  assert posthaste.progress(d, 0.7, '700 of 1000 rows'), 'progress was not stored';
  select attempts -> 0 as attempt into a from posthaste.message((select message_id from got));
  assert a.attempt @> '{"checkpoint": {"row": 700}, "progress": 0.7, "progress_text": "700 of 1000 rows"}', format('the attempt is %s', a.attempt);
  perform posthaste.fail(d, 'the disk is full', '{"retry_after": "0"}');
  begin
    perform posthaste.checkpoint(d, '2');
    raise exception 'a late checkpoint was stored';
  exception when sqlstate 'PH409' then
    null;
  end;
end $$;
create temporary table again as select attempt, checkpoint from posthaste.receive('contract_checkpoints', 1, '1 hour');
do $$
declare
  a record;
begin
  select * into strict a from again;
  assert a.attempt = 2 and a.checkpoint = '{"row": 700}', format('the next attempt is %s', a);
end $$;
-- Invalid values fail and name their field.
do $$
declare
  d bigint := (select delivery_id from got);
  v_code text;
  v_field text;
  c record;
begin
  for c in values ('select posthaste.checkpoint($1, null)', 'PH400', 'value'),
                  ('select posthaste.checkpoint($1, to_jsonb(repeat(''x'', 65536)))', 'PH413', 'value'),
                  ('select posthaste.checkpoint($1, ''1'', ''{"leese": "1 hour"}'')', 'PH400', 'leese'),
                  ('select posthaste.checkpoint(null, ''1'')', 'PH400', 'delivery_ids'),
                  ('select posthaste.progress($1, 1.1)', 'PH400', 'progress'),
                  ('select posthaste.progress($1, null)', 'PH400', 'progress'),
                  ('select posthaste.progress($1, 1, repeat(''x'', 1001))', 'PH400', 'progress_text') loop
    begin
      execute c.column1 using d;
      raise exception '% did not fail', c.column1;
    exception when sqlstate 'PH400' or sqlstate 'PH413' then
      get stacked diagnostics v_code = returned_sqlstate, v_field = column_name;
      assert v_code = c.column2 and v_field = c.column3, format('%s ended with %s %s', c.column1, v_code, v_field);
    end;
  end loop;
end $$;
drop table got, again;
select posthaste.drop_queue('contract_checkpoints');

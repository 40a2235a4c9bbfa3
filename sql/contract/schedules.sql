-- Schedules: each tick sends one message; bad input fails with the field.
select posthaste.create_queue('contract_reports', '{"max_payload": 200}');
select posthaste.schedule_put('contract_nightly', 'contract_reports', '30 2 * * *', '{"report": "daily"}',
  '{"time_zone": "europe/berlin", "catch_up": "each", "key": "k", "headers": {"a": "b"}}');

do $$
declare
  v record;
begin
  select * into strict v from posthaste.schedules s where s.name = 'contract_nightly';
  assert (v.queue, v.spec, v.time_zone, v.catch_up) = ('contract_reports', '30 2 * * *', 'Europe/Berlin', 'each'), v;
  assert v.next_at > now() and (v.next_at at time zone 'Europe/Berlin')::time = '02:30' or extract(month from v.next_at) = 3, v;
  assert cardinality(v.upcoming) = 5 and v.upcoming[1] = v.next_at and v.upcoming[2] > v.next_at, v;
  assert v.payload = '{"report": "daily"}' and v.options = '{"key": "k", "headers": {"a": "b"}}', v;

  -- Nothing is sent before its time.
  assert (select sent from posthaste.tick()) = 0;
  perform posthaste.maintain();
  assert (select count(*) from posthaste.list_messages(queue => 'contract_reports')) = 0;

  -- A paused schedule has no next tick, stays paused when put again, and continues when resumed.
  perform posthaste.schedule_pause('contract_nightly');
  perform posthaste.schedule_put('contract_nightly', 'contract_reports', '30 2 * * *');
  select * into strict v from posthaste.schedules s where s.name = 'contract_nightly';
  assert v.paused_at is not null and v.next_at is null and v.upcoming is null and v.payload = '{}' and v.time_zone = 'UTC' and v.catch_up = 'once', v;
  assert (select t.next_tick is null from posthaste.tick() t), 'a paused schedule ticks';
  assert posthaste.schedule_resume('contract_nightly') > now();
  assert (select t.next_tick > 0 from posthaste.tick() t), 'it does not tick';
  assert posthaste.schedule_resume('contract_nightly') = (select s.next_at from posthaste.schedules s where s.name = 'contract_nightly');

  -- When does a line tick?
  assert posthaste.schedule_next('0 12 * * mon-fri', 'America/New_York', '2026-07-03 17:00Z') = '2026-07-06 16:00Z';
  assert posthaste.schedule_next('*/15 * * * *', 'Europe/Berlin', '2026-10-25 00:50Z') = '2026-10-25 01:00Z';
  assert posthaste.schedule_next('30 2 * * *', 'Europe/Berlin', '2026-03-28 12:00Z') = '2026-03-29 01:00Z'; -- 02:30 does not exist: at 03:00
  assert posthaste.schedule_next('30 2 * * *', 'Europe/Berlin', '2026-03-29 01:00Z') = '2026-03-30 00:30Z';
  assert posthaste.schedule_next('30 2 * * *', 'Europe/Berlin', '2026-10-24 12:00Z') = '2026-10-25 00:30Z'; -- 02:30 comes twice: the first
  assert posthaste.schedule_next('30 2 * * *', 'Europe/Berlin', '2026-10-25 00:30Z') = '2026-10-26 01:30Z';
  assert posthaste.schedule_next('0 0 29 2 *', after => '2096-03-01Z') = '2104-02-29Z';
  assert posthaste.schedule_next('0 0 13 * fri', after => '2026-02-01Z') = '2026-02-06Z'; -- either day
  assert posthaste.schedule_next('every 90 seconds', after => '2026-02-01Z') = '2026-02-01 00:01:30Z';
  assert posthaste.schedule_next('@weekly', after => '2026-02-03Z') = posthaste.schedule_next('0 0 * * SUN', after => '2026-02-03Z');
  assert posthaste.schedule_next('0 0 * * 5-7', after => '2026-02-03Z') = posthaste.schedule_next('0 0 * * fri-sun', after => '2026-02-03Z');
end $$;

create temporary table cases (statement text, code text, field text);
insert into cases
select format('select posthaste.schedule_put(''contract_bad'', ''contract_reports'', %L)', x.spec), 'PH400', 'spec'
  from (values (null), (''), ('  '), ('* * * *'), ('* * * * * *'), ('60 * * * *'), ('* 24 * * *'), ('* * 0 * *'), ('* * 32 * *'), ('* * * 0 *'), ('* * * 13 *'),
    ('* * * * 8'), ('-1 * * * *'), ('*/0 * * * *'), ('5/15 * * * *'), ('30-10 * * * *'), (', * * * *'), ('1,,2 * * * *'), ('1, * * * *'), ('a * * * *'), ('* * * foo *'), ('* * * * monday'),
    ('* * * * mon-'), ('1-2-3 * * * *'), ('0 0 31 2 *'), ('0 0 30 feb *'), ('0 0 31 4,6,9,11 *'), ('@reboot'), ('@'), ('every'), ('every 0 seconds'), ('every -1 minute'),
    ('every 0.5 seconds'), ('every 1.5 seconds'), ('every 1 month'), ('every 1 year'), ('every 11000 weeks'), ('every infinity'), ('every now'), ('every 99999999999 days'), (repeat('1,', 200) || '1 * * * *')) x (spec);
insert into cases
select format('select posthaste.schedule_put(''contract_bad'', ''contract_reports'', ''@daily'', ''1'', %L)', x.options), x.code, x.field
  from (values ('[]', 'PH400', 'options'), ('{"color": 1}', 'PH400', 'color'), ('{"time_zone": "Europe/Berln"}', 'PH400', 'time_zone'), ('{"time_zone": "Europe/Berlin1"}', 'PH400', 'time_zone'),
    ('{"time_zone": "CET"}', 'PH400', 'time_zone'), ('{"time_zone": "Etc/GMT+99"}', 'PH400', 'time_zone'), ('{"time_zone": "../../etc/passwd"}', 'PH400', 'time_zone'), ('{"time_zone": "+02"}', 'PH400', 'time_zone'), ('{"time_zone": ""}', 'PH400', 'time_zone'), ('{"time_zone": 1}', 'PH400', 'time_zone'),
    ('{"catch_up": "all"}', 'PH400', 'catch_up'), ('{"catch_up": true}', 'PH400', 'catch_up'), ('{"delay": "1 second"}', 'PH400', 'delay'), ('{"send_at": "2999-01-01T00:00:00Z"}', 'PH400', 'send_at'),
    ('{"dedupe_key": "d"}', 'PH400', 'dedupe_key'), ('{"wake": false}', 'PH400', 'wake'), ('{"priority": 4}', 'PH400', 'priority'), ('{"dedupe_window": "1 hour"}', 'PH400', 'dedupe_window'), ('{"headers": {"posthaste-tick": "x"}}', 'PH400', 'headers'), ('{"headers": []}', 'PH400', 'headers'),
    ('{"headers": "x"}', 'PH400', 'headers'), ('{"key": 1}', 'PH400', 'key'), (jsonb_build_object('key', repeat('k', 256))::text, 'PH413', 'key'),
    (jsonb_build_object('headers', jsonb_build_object('h', repeat('k', 30000)))::text, 'PH413', 'headers')) x (options, code, field);
insert into cases values
  ('select posthaste.schedule_put(null, ''contract_reports'', ''@daily'')', 'PH400', 'name'),
  ('select posthaste.schedule_put(''Upper'', ''contract_reports'', ''@daily'')', 'PH400', 'name'),
  ('select posthaste.schedule_put(repeat(''n'', 64), ''contract_reports'', ''@daily'')', 'PH400', 'name'),
  ('select posthaste.schedule_put(''contract_bad'', ''nowhere'', ''@daily'')', 'PH404', 'queue'),
  ('select posthaste.schedule_put(''contract_bad'', null, ''@daily'')', 'PH404', 'queue'),
  ('select posthaste.schedule_put(''contract_bad'', ''contract_reports'', ''@daily'', null)', 'PH400', 'payload'),
  ('select posthaste.schedule_put(''contract_bad'', ''contract_reports'', ''@daily'', to_jsonb(repeat(''x'', 200)))', 'PH413', 'payload'),
  ('select posthaste.schedule_drop(''contract_bad'')', 'PH404', 'name'),
  ('select posthaste.schedule_drop(null)', 'PH404', 'name'),
  ('select posthaste.schedule_pause(''contract_bad'')', 'PH404', 'name'),
  ('select posthaste.schedule_resume(''contract_bad'')', 'PH404', 'name'),
  ('select posthaste.schedule_next(''@daily'', ''nowhere'')', 'PH400', 'time_zone'),
  ('select posthaste.schedule_next(''@daily'', null)', 'PH400', 'time_zone'),
  ('select posthaste.schedule_next(''0 0 31 2 *'')', 'PH400', 'spec'),
  ('select posthaste.schedule_next(''@daily'', ''UTC'', ''infinity'')', 'PH400', 'after');

do $$
declare
  c record;
  v_code text; v_field text; v_text text;
begin
  for c in select * from cases loop
    begin
      execute c.statement;
      v_code := 'none';
    exception when others then
      get stacked diagnostics v_code = returned_sqlstate, v_field = column_name, v_text = message_text;
    end;
    assert v_code = c.code and v_field = c.field, format('%s: %s %s %s', c.statement, v_code, v_field, v_text);
  end loop;
  assert (select count(*) from posthaste.schedules s where s.name <> 'contract_nightly') = 0;
  assert (select count(*) from posthaste.list_messages(queue => 'contract_reports')) = 0;
end $$;
drop table cases;

-- Dropping a queue drops the schedules that send to it.
select posthaste.drop_queue('contract_reports');
do $$ begin
  assert not exists (select from posthaste.schedules);
  assert (select t.next_tick is null from posthaste.tick() t), 'there is a tick without a schedule';
end $$;

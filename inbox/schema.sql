-- The inbox of Posthaste records the messages that a consumer has handled, so that a
-- redelivered message is not handled again. It has its own schema and depends on
-- nothing but PostgreSQL 14. Run it as the future owner; running it again changes
-- nothing. Consumers need: usage on schema posthaste_inbox, and execute on function
-- posthaste_inbox.remember and remember_many.
--
-- In the transaction of the effect:
--
--   select posthaste_inbox.remember('mailer', '4711');   -- true: new, handle it. false: handled before.
--
-- Ids are remembered for at least the window, and for at most one and a half windows
-- if rotate is called often enough, for example every minute. Truncating a third of
-- the ids at a time frees the space.
do $install$
begin
  perform pg_catalog.pg_advisory_xact_lock(5784909358553004081); -- one installation at a time
  create schema if not exists posthaste_inbox;
  if pg_catalog.to_regclass('posthaste_inbox.settings') is null then
    create table posthaste_inbox.settings (
      one boolean primary key default true check (one),
      "window" interval not null default '3 days' check ("window" > '0'),
      -- the third for new ids, and the time since when
      current smallint not null default 0 check (current between 0 and 2),
      rotated_at timestamptz not null default pg_catalog.now()
    );
    insert into posthaste_inbox.settings default values;
    create table posthaste_inbox.seen (
      third smallint not null,
      consumer text not null,
      id text not null,
      at timestamptz not null default pg_catalog.now(),
      primary key (third, consumer, id)
    ) partition by list (third);
    create table posthaste_inbox.seen_0 partition of posthaste_inbox.seen for values in (0);
    create table posthaste_inbox.seen_1 partition of posthaste_inbox.seen for values in (1);
    create table posthaste_inbox.seen_2 partition of posthaste_inbox.seen for values in (2);
  end if;
end
$install$;

-- posthaste_inbox.remember_many: remembers ids for a consumer and returns those that
-- it had not handled before, each once. If another transaction is remembering one of
-- them, it waits until that ends: if it rolls back, the id is new here.
-- Errors: 22023 for an empty consumer or id, and at other isolation levels than read
-- committed, which would not see ids that other transactions have committed since.
-- Locks: the advisory lock of rotation, shared, until the end of the transaction.
create or replace function posthaste_inbox.remember_many(consumer text, ids text[])
returns setof text language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_current smallint;
begin
  if coalesce(remember_many.consumer, '') = '' or '' = any (remember_many.ids) or array_position(remember_many.ids, null) is not null then
    raise exception using errcode = '22023', message = 'an inbox needs a consumer and ids that are not empty';
  end if;
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using errcode = '22023', message = 'an inbox needs the isolation read committed',
      hint = 'begin the transaction without an isolation level, or with read committed';
  end if;
  -- The next third is not written before all transactions that wrote to this one have
  -- ended, so that a single index decides which transaction is first. The lock is a
  -- separate statement, because the next one must see commits made while it waited.
  perform pg_advisory_xact_lock_shared(5784909358553004082);
  select s.current into v_current from posthaste_inbox.settings s;
  return query
    insert into posthaste_inbox.seen (third, consumer, id)
    select v_current, remember_many.consumer, i.id
      from (select distinct u.id from unnest(remember_many.ids) u (id)) i
     where not exists (select from posthaste_inbox.seen s
                        where s.third = any (array[(v_current + 1) % 3, (v_current + 2) % 3]::smallint[])
                          and s.consumer = remember_many.consumer and s.id = i.id)
     order by i.id -- the same order in all transactions prevents deadlocks
    on conflict (third, consumer, id) do nothing
    returning id;
end;
$$;

-- posthaste_inbox.remember: remembers one id and returns whether it is new.
create or replace function posthaste_inbox.remember(consumer text, id text)
returns boolean language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select exists (select from posthaste_inbox.remember_many(remember.consumer, array[remember.id]));
$$;

-- posthaste_inbox.rotate: removes ids that are older than the window, a third at a
-- time, and returns whether it did. It does nothing until half a window after the
-- last rotation, or if transactions that remember ids take longer than a second to
-- end: call it again then. Transactions that begin in the meantime wait for it.
-- Locks: the advisory lock of rotation and the oldest third, exclusive.
create or replace function posthaste_inbox.rotate()
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
  v_next int;
begin
  if not exists (select from posthaste_inbox.settings s where clock_timestamp() >= s.rotated_at + s."window" / 2) then
    return false;
  end if;
  begin
    perform pg_advisory_xact_lock(5784909358553004082);
    select (s.current + 1) % 3 into v_next from posthaste_inbox.settings s where clock_timestamp() >= s.rotated_at + s."window" / 2;
    if not found then
      return false; -- another transaction did it meanwhile
    end if;
    execute format('truncate posthaste_inbox.%I', 'seen_' || v_next);
    update posthaste_inbox.settings set current = v_next, rotated_at = clock_timestamp();
    return true;
  exception when lock_not_available then
    return false;
  end;
end;
$$;

-- posthaste_inbox.set_window: sets how long ids are remembered, from now on.
create or replace function posthaste_inbox.set_window("window" interval)
returns void language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  update posthaste_inbox.settings set "window" = set_window."window";
$$;

revoke all on function posthaste_inbox.remember_many(text, text[]), posthaste_inbox.remember(text, text), posthaste_inbox.rotate(), posthaste_inbox.set_window(interval) from public;

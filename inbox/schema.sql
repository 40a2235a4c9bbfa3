-- The inbox of Posthaste: what a consumer has handled already, so that a message
-- that comes twice has its effect once. It stands by itself, in a schema of its own,
-- and needs nothing but PostgreSQL 14. Run it as the owner-to-be; again it changes
-- nothing. Give those who consume: grant usage on schema posthaste_inbox, and
-- execute on function posthaste_inbox.remember and remember_many.
--
-- In the transaction of the effect:
--
--   select posthaste_inbox.remember('mailer', '4711');   -- true: new, go on. false: done before.
--
-- Ids are remembered for at least the window, and for at most one and a half of it
-- where rotate is called often enough, such as every minute. Space comes back by
-- truncating a third of the ids at a time.
do $install$
begin
  perform pg_catalog.pg_advisory_xact_lock(5784909358553004081); -- one installs at a time
  create schema if not exists posthaste_inbox;
  if pg_catalog.to_regclass('posthaste_inbox.settings') is null then
    create table posthaste_inbox.settings (
      one boolean primary key default true check (one),
      "window" interval not null default '3 days' check ("window" > '0'),
      -- the third that new ids go to, and since when
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
-- it had not handled before, each once. Where another transaction is about to
-- remember one of them it waits for its end: if that rolls back, the id is new here.
-- Errors: 22023 for an empty consumer or id, and in another isolation than read
-- committed, which would not see what others remembered since it began.
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
  -- Until all who wrote to a third are gone, nobody writes to the next: so there is
  -- one index at a time that decides who is first. A statement of its own, for the
  -- next one has to see what was committed while it waited.
  perform pg_advisory_xact_lock_shared(5784909358553004082);
  select s.current into v_current from posthaste_inbox.settings s;
  return query
    insert into posthaste_inbox.seen (third, consumer, id)
    select v_current, remember_many.consumer, i.id
      from (select distinct u.id from unnest(remember_many.ids) u (id)) i
     where not exists (select from posthaste_inbox.seen s
                        where s.third = any (array[(v_current + 1) % 3, (v_current + 2) % 3]::smallint[])
                          and s.consumer = remember_many.consumer and s.id = i.id)
     order by i.id -- the same order for all, so that two that wait for each other cannot be
    on conflict (third, consumer, id) do nothing
    returning id;
end;
$$;

-- posthaste_inbox.remember: the same for one id: whether it is new.
create or replace function posthaste_inbox.remember(consumer text, id text)
returns boolean language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  select exists (select from posthaste_inbox.remember_many(remember.consumer, array[remember.id]));
$$;

-- posthaste_inbox.rotate: forgets ids that are older than the window, a third at a
-- time, and says whether it did. It does nothing before half a window is over since
-- it last did, and nothing where transactions that remember take longer than a
-- second to end: call it again then. Those that begin meanwhile wait for it.
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
      return false; -- somebody else did it meanwhile
    end if;
    execute format('truncate posthaste_inbox.%I', 'seen_' || v_next);
    update posthaste_inbox.settings set current = v_next, rotated_at = clock_timestamp();
    return true;
  exception when lock_not_available then
    return false;
  end;
end;
$$;

-- posthaste_inbox.set_window: how long ids are remembered, from now on.
create or replace function posthaste_inbox.set_window("window" interval)
returns void language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
  update posthaste_inbox.settings set "window" = set_window."window";
$$;

revoke all on function posthaste_inbox.remember_many(text, text[]), posthaste_inbox.remember(text, text), posthaste_inbox.rotate(), posthaste_inbox.set_window(interval) from public;

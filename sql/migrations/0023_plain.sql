-- compatible
-- What most messages are: handed out at once, in no order of their key, and never
-- appended again. The columns that few of these have are in more, and what none of them
-- has is not stored. posthaste.entries shows them together with all others.
-- xid stands before pos on purpose: defaults are evaluated in this order, so a
-- writer has a transaction id before it takes a position. Reclaiming relies on
-- it: a position of a slot can only come from a transaction that was already
-- in progress when the sequence left the slot.
drop function if exists posthaste.head_of;
drop table posthaste.entries cascade;
create table posthaste.entries_plain (
  xid        xid8        not null default pg_current_xact_id(),
  pos        bigint      not null default nextval('posthaste.positions'),
  created_at timestamptz not null default statement_timestamp(),
  queue_id   int         not null,
  lane       smallint    not null default 0,
  key        text collate "C",
  kind       text collate "C",
  trace      text collate "C",
  more       jsonb,
  payload    bytea       not null
) partition by list (((pos >> 22) & 15));

-- What has a due time (scheduled messages, retries, events) or a place in the order of
-- its key.
create table posthaste.entries_other (
  xid              xid8        not null default pg_current_xact_id(),
  pos              bigint      not null default nextval('posthaste.positions'),
  ord              xid8,
  message_id       bigint,
  created_at       timestamptz not null default statement_timestamp(),
  due_at           timestamptz,
  queue_id         int         not null,
  lane             smallint    not null default 0,
  for_subscription smallint,
  attempt          smallint    not null default 1,
  failures         smallint    not null default 0,
  losses           smallint    not null default 0,
  losses_alone     smallint    not null default 0,
  content_type     text collate "C",
  key              text collate "C",
  kind             text collate "C",
  reference        text collate "C",
  headers          jsonb,
  terms            text[] collate "C",
  trace            text collate "C",
  story            jsonb,
  payload          bytea       not null
) partition by list (((pos >> 22) & 15));

-- Where the messages with a reference or a term are: 'r' or 't' with the text. By the
-- slot of the row that has it, which may be an outcome's. Those of entries_plain are
-- found by their key there (queue_id, lane, xid, pos), the others by pos.
create table posthaste.words (
  slot       bigint   not null,
  message_id bigint   not null,
  pos        bigint   not null,
  xid        xid8,
  queue_id   int      not null,
  lane       smallint not null,
  word       text collate "C" not null
) partition by list (slot);

do $$
declare
  lz4 boolean := exists (select from pg_catalog.pg_settings
                          where name = 'default_toast_compression' and 'lz4' = any (enumvals));
  t text;
begin
  foreach t in array array['entries_plain', 'entries_other', 'words'] loop
    for s in 0..15 loop
      execute format('create table posthaste.%I partition of posthaste.%I for values in (%s) with (autovacuum_enabled = off, toast.autovacuum_enabled = off)',
        t || '_' || s, t, s);
      -- Without a primary key a publication of all tables would refuse deletes.
      execute format('alter table posthaste.%I replica identity full', t || '_' || s);
    end loop;
    -- Compressing payloads with pglz costs more than it saves; lz4 does not.
    for s in -1..15 loop
      continue when t = 'words';
      execute format('alter table posthaste.%I alter column payload set %s', t || case when s >= 0 then '_' || s else '' end,
        case when lz4 then 'compression lz4' else 'storage external' end);
    end loop;
  end loop;
end $$;

create index entries_plain_log on posthaste.entries_plain (queue_id, lane, xid, pos);
create index entries_plain_pos on posthaste.entries_plain using brin (pos) with (pages_per_range = 32);
create index entries_other_due_xid on posthaste.entries_other (queue_id, lane, xid, pos) where due_at is not null;
create index entries_other_due on posthaste.entries_other (queue_id, lane, due_at, pos) where due_at is not null;
create index entries_other_ordered on posthaste.entries_other (queue_id, lane, ord, pos) where ord is not null and due_at is null;
create index entries_other_late on posthaste.entries_other (queue_id, lane, xid, ord, pos) where ord is not null and due_at is null and ord <> xid;
create index entries_other_message on posthaste.entries_other (message_id) where message_id is not null;
create index entries_other_pos on posthaste.entries_other using brin (pos) with (pages_per_range = 32);
create index words_word on posthaste.words (word, queue_id, message_id);
drop index posthaste.outcomes_terms;

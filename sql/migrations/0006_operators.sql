-- compatible
-- Dead letters by more than their id, who did what, and the history of queues
-- that keep one.

create index dead_letter_entries_key on posthaste.dead_letter_entries (queue_id, key, message_id) where key is not null;
create index dead_letter_entries_kind on posthaste.dead_letter_entries (queue_id, kind, message_id) where kind is not null;
create index dead_letter_entries_died on posthaste.dead_letter_entries (died_at);
alter table posthaste.dead_letter_entries add column erased_at timestamptz;

-- What dead letters are chosen by; null is any.
create type posthaste.dead_filter as (
  queue_id int, subscription smallint, kind text, key text, reference text, term text, error text, died_from timestamptz, died_before timestamptz);

-- The records of actions are shown by a view that bears the table's old name,
-- which takes new ones, too.
alter table posthaste.actions rename to action_records;
create index action_records_queue on posthaste.action_records (queue_id, id);

alter table posthaste.queue_settings add column retain_payload boolean not null default false;
alter table posthaste.queue_settings add check (retention > '0' and retention <= '36500 days');

-- What is known of settled messages of queues with a retention, one row for each
-- subscription, copied when the ring comes to where it lies. Space comes back
-- part by part: a part is truncated when the last of its rows has expired.
create table posthaste.history (
  part         smallint    not null,
  subscription smallint    not null,
  queue_id     int         not null,
  message_id   bigint      not null,
  created_at   timestamptz not null,
  settled_at   timestamptz not null,
  expires_at   timestamptz not null,
  erased_at    timestamptz,
  state        text        not null,
  content_type text,
  key          text,
  kind         text,
  reference    text,
  headers      jsonb,
  terms        text[],
  attempts     jsonb       not null,
  payload      bytea,
  primary key (part, queue_id, message_id, subscription)
) partition by list (part);
do $$
begin
  for p in 0..15 loop
    execute format('create table posthaste.history_%s partition of posthaste.history for values in (%1$s)', p);
  end loop;
end $$;
create index history_message on posthaste.history (message_id);
create index history_reference on posthaste.history (queue_id, reference, message_id) where reference is not null;
create index history_key on posthaste.history (queue_id, key, message_id) where key is not null;
create index history_terms on posthaste.history using gin (terms) with (gin_pending_list_limit = 256) where terms is not null;

-- The parts in use, and until when: nothing in them expires later.
create table posthaste.history_parts (
  part  smallint primary key check (part between 0 and 15),
  until timestamptz not null
);

-- How far a reader's claims were copied to the history, but for those set aside
-- because they were open.
create table posthaste.history_cursors (
  reader bigint primary key,
  seq    bigint not null
) with (fillfactor = 50);
create table posthaste.history_aside (
  reader bigint not null,
  claim  bigint not null,
  primary key (reader, claim)
);

-- Settled messages whose content nobody is shown any more, though the ring has
-- it until it comes there. pos is as far as the sequence had come: a row goes when
-- no slot has anything that is older.
create table posthaste.erased (
  message_id bigint primary key,
  pos        bigint      not null,
  at         timestamptz not null default clock_timestamp()
);
create index erased_pos on posthaste.erased (pos);

-- Whether the history has it.
alter table posthaste.cancelled add column copied boolean not null default false;

-- A search by term reads the whole list of what is not sorted in yet, 4 MB of each
-- slot unless told otherwise, which took 130 ms among 10 million.
alter index posthaste.dead_letter_entries_terms set (gin_pending_list_limit = 256);
do $$
begin
  for s in 0..15 loop
    execute format('alter index posthaste.entries_%s_terms_idx set (gin_pending_list_limit = 256)', s);
  end loop;
end $$;

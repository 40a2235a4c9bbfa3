-- What migrate makes of schema posthaste, one line per thing; a number after
-- the dashes counts leaves of the ring that are alike in it. Written by
-- go test ./sql -run Golden -update, and reviewed like code.
type action_listed
  id bigint
  at timestamp with time zone
  by text
  action text
  queue text
  message_id bigint
  details jsonb
table action_records
  id bigint not null generated always as identity
  at timestamp with time zone not null default clock_timestamp()
  by text not null
  action text not null
  message_id bigint
  queue_id integer
  details jsonb
  constraint action_records_pkey PRIMARY KEY (id)
  index INDEX action_records_message ON posthaste.action_records USING btree (message_id)
  index INDEX action_records_queue ON posthaste.action_records USING btree (queue_id, id)
  index UNIQUE INDEX action_records_pkey ON posthaste.action_records USING btree (id)
sequence action_records_id_seq bigint start 1 increment 1 cache 1
view actions
  id bigint
  at timestamp with time zone
  by text
  action text
  queue text
  message_id bigint
  details jsonb
  queue_id integer
table ahead
  subscriber bigint not null
  lane smallint not null
  id bigint not null
  reading bigint
  base0 pg_snapshot not null
  base1 pg_snapshot not null
  s0 pg_snapshot not null
  s1 pg_snapshot not null
  last_xid xid8 not null
  last_pos bigint not null
  parked bigint not null
  complete boolean not null
  constraint ahead_pkey PRIMARY KEY (subscriber, lane, id)
  index UNIQUE INDEX ahead_pkey ON posthaste.ahead USING btree (subscriber, lane, id)
table ahead_keys with (fillfactor=70)
  subscriber bigint not null
  lane smallint not null
  reading bigint not null
  key text not null
  parked bigint not null
  left_in_log boolean not null
  constraint ahead_keys_pkey PRIMARY KEY (subscriber, lane, reading, key)
  index UNIQUE INDEX ahead_keys_pkey ON posthaste.ahead_keys USING btree (subscriber, lane, reading, key)
table applied
  only_row boolean not null default true
  hash text not null default ''::text
  objects text[] not null default '{}'::text[]
  applied_at timestamp with time zone not null default clock_timestamp()
  constraint applied_only_row_check CHECK (only_row)
  constraint applied_pkey PRIMARY KEY (only_row)
  index UNIQUE INDEX applied_pkey ON posthaste.applied USING btree (only_row)
table cancel_requests
  delivery bigint not null
  worker bigint not null
  constraint cancel_requests_pkey PRIMARY KEY (delivery)
  index INDEX cancel_requests_worker ON posthaste.cancel_requests USING btree (worker)
  index UNIQUE INDEX cancel_requests_pkey ON posthaste.cancel_requests USING btree (delivery)
table cancelled
  pos bigint not null
  subscriber bigint not null
  at timestamp with time zone not null default clock_timestamp()
  xid xid8
  noted xid8 not null default pg_current_xact_id()
  copied boolean not null default false
  outcome text not null
  constraint cancelled_pkey PRIMARY KEY (pos, subscriber)
  index INDEX cancelled_fresh ON posthaste.cancelled USING btree (subscriber, xid) WHERE (xid IS NOT NULL)
  index INDEX cancelled_noted ON posthaste.cancelled USING btree (noted)
  index UNIQUE INDEX cancelled_pkey ON posthaste.cancelled USING btree (pos, subscriber)
table carried
  slot smallint not null
  queue_id integer not null
  lane smallint not null
  since timestamp with time zone not null
  due_at timestamp with time zone not null
  pos bigint not null
  constraint carried_pkey PRIMARY KEY (slot, queue_id, lane)
  index UNIQUE INDEX carried_pkey ON posthaste.carried USING btree (slot, queue_id, lane)
type chart_bounds
  begins timestamp with time zone
  ends timestamp with time zone
  step interval
  hours boolean
  details_from timestamp with time zone
table charted with (fillfactor=50)
  only_row boolean not null default true
  sampled_at timestamp with time zone not null default '-infinity'::timestamp with time zone
  summed_to timestamp with time zone not null default date_trunc('hour'::text, clock_timestamp(), 'UTC'::text)
  details_block integer not null default 0
  hours_block integer not null default 0
  constraint charted_only_row_check CHECK (only_row)
  constraint charted_pkey PRIMARY KEY (only_row)
  index UNIQUE INDEX charted_pkey ON posthaste.charted USING btree (only_row)
partitioned table claims partition by LIST (slot)
  slot bigint not null
  places smallint not null
  part smallint not null
  single boolean not null
  alone boolean not null
  ended boolean not null
  id bigint not null
  reader bigint not null
  seq bigint not null
  total bigint not null
  holder bigint
  number bigint
  at timestamp with time zone not null default clock_timestamp()
  window_claim bigint
  first_xid xid8
  first_pos bigint
  last_xid xid8
  last_pos bigint
  first_due timestamp with time zone
  last_due timestamp with time zone
  t0 timestamp with time zone
  t1 timestamp with time zone
  sifted bigint
  s0 pg_snapshot
  s1 pg_snapshot
  withheld bit varying
  expired bit varying
  keys bigint[]
  open bigint[]
  busy bigint[]
  turns bigint[]
  constraint claims_pkey PRIMARY KEY (slot, id)
  index INDEX claims_holder ON ONLY posthaste.claims USING btree (holder, number) WHERE (holder IS NOT NULL)
  index INDEX claims_reader ON ONLY posthaste.claims USING btree (reader, seq)
  index UNIQUE INDEX claims_pkey ON ONLY posthaste.claims USING btree (slot, id)
leaf claims_N with (autovacuum_enabled=off) toast with (autovacuum_enabled=off) -- 16
  slot bigint not null -- 16
  places smallint not null -- 16
  part smallint not null -- 16
  single boolean not null -- 16
  alone boolean not null -- 16
  ended boolean not null -- 16
  id bigint not null -- 16
  reader bigint not null -- 16
  seq bigint not null -- 16
  total bigint not null -- 16
  holder bigint -- 16
  number bigint -- 16
  at timestamp with time zone not null default clock_timestamp() -- 16
  window_claim bigint -- 16
  first_xid xid8 -- 16
  first_pos bigint -- 16
  last_xid xid8 -- 16
  last_pos bigint -- 16
  first_due timestamp with time zone -- 16
  last_due timestamp with time zone -- 16
  t0 timestamp with time zone -- 16
  t1 timestamp with time zone -- 16
  sifted bigint -- 16
  s0 pg_snapshot -- 16
  s1 pg_snapshot -- 16
  withheld bit varying -- 16
  expired bit varying -- 16
  keys bigint[] -- 16
  open bigint[] -- 16
  busy bigint[] -- 16
  turns bigint[] -- 16
  constraint claims_N_pkey PRIMARY KEY (slot, id) -- 16
  index INDEX claims_N_holder_number_idx ON posthaste.claims_N USING btree (holder, number) WHERE (holder IS NOT NULL) -- 16
  index INDEX claims_N_reader_seq_idx ON posthaste.claims_N USING btree (reader, seq) -- 16
  index UNIQUE INDEX claims_N_pkey ON posthaste.claims_N USING btree (slot, id) -- 16
table counted with (fillfactor=50)
  only_row boolean not null default true
  s pg_snapshot not null
  last_value bigint not null default 0
  at timestamp with time zone not null default clock_timestamp()
  constraint counted_only_row_check CHECK (only_row)
  constraint counted_pkey PRIMARY KEY (only_row)
  index UNIQUE INDEX counted_pkey ON posthaste.counted USING btree (only_row)
table counters with (fillfactor=50)
  queue_id integer not null
  subscription smallint not null
  sent bigint not null default 0
  again bigint not null default 0
  handed bigint not null default 0
  done bigint not null default 0
  settled bigint not null default 0
  retried bigint not null default 0
  lost bigint not null default 0
  expired bigint not null default 0
  dropped bigint not null default 0
  sifted bigint not null default 0
  before_sent bigint not null default 0
  before_done bigint not null default 0
  before_at timestamp with time zone
  counted_at timestamp with time zone not null default clock_timestamp()
  sampled bigint[] not null default '{0,0,0,0,0,0,0,0}'::bigint[]
  constraint counters_pkey PRIMARY KEY (queue_id, subscription)
  index UNIQUE INDEX counters_pkey ON posthaste.counters USING btree (queue_id, subscription)
type cron
  minutes bigint
  hours bigint
  days bigint
  months bigint
  weekdays bigint
  either boolean
type dead_filter
  queue_id integer
  subscription smallint
  kind text
  key text
  reference text
  term text
  error text
  died_from timestamp with time zone
  died_before timestamp with time zone
table dead_letter_entries
  message_id bigint not null
  subscription smallint not null
  queue_id integer not null
  lane smallint not null
  pos bigint not null
  ord xid8
  attempt smallint not null
  created_at timestamp with time zone not null
  died_at timestamp with time zone not null default clock_timestamp()
  erased_at timestamp with time zone
  content_type text
  key text
  kind text
  reference text
  headers jsonb
  terms text[]
  trace text
  error text not null
  story jsonb not null
  payload bytea not null
  constraint dead_letter_entries_pkey PRIMARY KEY (queue_id, message_id, subscription)
  constraint dead_letter_entries_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES queue_settings(id)
  index INDEX dead_letter_entries_died ON posthaste.dead_letter_entries USING btree (died_at)
  index INDEX dead_letter_entries_key ON posthaste.dead_letter_entries USING btree (queue_id, key, message_id) WHERE (key IS NOT NULL)
  index INDEX dead_letter_entries_kind ON posthaste.dead_letter_entries USING btree (queue_id, kind, message_id) WHERE (kind IS NOT NULL)
  index INDEX dead_letter_entries_message ON posthaste.dead_letter_entries USING btree (message_id)
  index INDEX dead_letter_entries_reference ON posthaste.dead_letter_entries USING btree (queue_id, reference, message_id) WHERE (reference IS NOT NULL)
  index INDEX dead_letter_entries_terms ON posthaste.dead_letter_entries USING gin (terms) WITH (gin_pending_list_limit='256') WHERE (terms IS NOT NULL)
  index UNIQUE INDEX dead_letter_entries_pkey ON posthaste.dead_letter_entries USING btree (queue_id, message_id, subscription)
view dead_letters
  message_id bigint
  queue text
  subscription text
  error text
  died_at timestamp with time zone
  created_at timestamp with time zone
  attempts smallint
  key text
  kind text
  headers jsonb
  reference text
  terms text[]
  content_type text
  payload bytea
  story jsonb
  erased_at timestamp with time zone
table dedupe_keys
  queue_id integer not null
  key text not null
  message_id bigint not null
  until timestamp with time zone not null
  constraint dedupe_keys_pkey PRIMARY KEY (queue_id, key)
  index INDEX dedupe_keys_until ON posthaste.dedupe_keys USING btree (until)
  index UNIQUE INDEX dedupe_keys_pkey ON posthaste.dedupe_keys USING btree (queue_id, key)
view entries
  xid xid8
  pos bigint
  ord xid8
  message_id bigint
  created_at timestamp with time zone
  due_at timestamp with time zone
  queue_id integer
  lane smallint
  for_subscription smallint
  attempt smallint
  failures smallint
  losses smallint
  losses_alone smallint
  content_type text
  key text
  kind text
  reference text
  headers jsonb
  terms text[]
  trace text
  story jsonb
  payload bytea
  ages_from timestamp with time zone
  plain boolean
  at_row tid
  head head
partitioned table entries_other partition by LIST ((((pos >> 22) & (15)::bigint)))
  xid xid8 not null default pg_current_xact_id()
  pos bigint not null default nextval('positions'::regclass)
  ord xid8
  message_id bigint
  created_at timestamp with time zone not null default statement_timestamp()
  due_at timestamp with time zone
  queue_id integer not null
  lane smallint not null default 0
  for_subscription smallint
  attempt smallint not null default 1
  failures smallint not null default 0
  losses smallint not null default 0
  losses_alone smallint not null default 0
  ages_from timestamp with time zone
  content_type text
  key text
  kind text
  reference text
  headers jsonb
  terms text[]
  trace text
  story jsonb
  payload bytea not null storage e
  index INDEX entries_other_due ON ONLY posthaste.entries_other USING btree (queue_id, lane, due_at, pos) WHERE (due_at IS NOT NULL)
  index INDEX entries_other_due_xid ON ONLY posthaste.entries_other USING btree (queue_id, lane, xid, pos) WHERE (due_at IS NOT NULL)
  index INDEX entries_other_late ON ONLY posthaste.entries_other USING btree (queue_id, lane, xid, ord, pos) WHERE ((ord IS NOT NULL) AND (due_at IS NULL) AND (ord <> xid))
  index INDEX entries_other_message ON ONLY posthaste.entries_other USING btree (message_id) WHERE (message_id IS NOT NULL)
  index INDEX entries_other_ordered ON ONLY posthaste.entries_other USING btree (queue_id, lane, ord, pos) WHERE ((ord IS NOT NULL) AND (due_at IS NULL))
  index INDEX entries_other_pos ON ONLY posthaste.entries_other USING brin (pos) WITH (pages_per_range='32')
leaf entries_other_N with (autovacuum_enabled=off) toast with (autovacuum_enabled=off) -- 16
  xid xid8 not null default pg_current_xact_id() -- 16
  pos bigint not null default nextval('positions'::regclass) -- 16
  ord xid8 -- 16
  message_id bigint -- 16
  created_at timestamp with time zone not null default statement_timestamp() -- 16
  due_at timestamp with time zone -- 16
  queue_id integer not null -- 16
  lane smallint not null default 0 -- 16
  for_subscription smallint -- 16
  attempt smallint not null default 1 -- 16
  failures smallint not null default 0 -- 16
  losses smallint not null default 0 -- 16
  losses_alone smallint not null default 0 -- 16
  ages_from timestamp with time zone -- 16
  content_type text -- 16
  key text -- 16
  kind text -- 16
  reference text -- 16
  headers jsonb -- 16
  terms text[] -- 16
  trace text -- 16
  story jsonb -- 16
  payload bytea not null storage e -- 16
  index INDEX entries_other_N_message_id_idx ON posthaste.entries_other_N USING btree (message_id) WHERE (message_id IS NOT NULL) -- 16
  index INDEX entries_other_N_pos_idx ON posthaste.entries_other_N USING brin (pos) WITH (pages_per_range='32') -- 16
  index INDEX entries_other_N_queue_id_lane_due_at_pos_idx ON posthaste.entries_other_N USING btree (queue_id, lane, due_at, pos) WHERE (due_at IS NOT NULL) -- 16
  index INDEX entries_other_N_queue_id_lane_ord_pos_idx ON posthaste.entries_other_N USING btree (queue_id, lane, ord, pos) WHERE ((ord IS NOT NULL) AND (due_at IS NULL)) -- 16
  index INDEX entries_other_N_queue_id_lane_xid_ord_pos_idx ON posthaste.entries_other_N USING btree (queue_id, lane, xid, ord, pos) WHERE ((ord IS NOT NULL) AND (due_at IS NULL) AND (ord <> xid)) -- 16
  index INDEX entries_other_N_queue_id_lane_xid_pos_idx ON posthaste.entries_other_N USING btree (queue_id, lane, xid, pos) WHERE (due_at IS NOT NULL) -- 16
partitioned table entries_plain partition by LIST ((((pos >> 22) & (15)::bigint)))
  xid xid8 not null default pg_current_xact_id()
  pos bigint not null default nextval('positions'::regclass)
  created_at timestamp with time zone not null default statement_timestamp()
  queue_id integer not null
  lane smallint not null default 0
  key text
  kind text
  trace text
  more jsonb
  payload bytea not null storage e
  index INDEX entries_plain_log ON ONLY posthaste.entries_plain USING btree (queue_id, lane, xid, pos) WHERE (lane >= 0)
  index INDEX entries_plain_pos ON ONLY posthaste.entries_plain USING brin (pos) WITH (pages_per_range='32')
leaf entries_plain_N with (autovacuum_enabled=off) toast with (autovacuum_enabled=off) -- 16
  xid xid8 not null default pg_current_xact_id() -- 16
  pos bigint not null default nextval('positions'::regclass) -- 16
  created_at timestamp with time zone not null default statement_timestamp() -- 16
  queue_id integer not null -- 16
  lane smallint not null default 0 -- 16
  key text -- 16
  kind text -- 16
  trace text -- 16
  more jsonb -- 16
  payload bytea not null storage e -- 16
  index INDEX entries_plain_N_pos_idx ON posthaste.entries_plain_N USING brin (pos) WITH (pages_per_range='32') -- 16
  index INDEX entries_plain_N_queue_id_lane_xid_pos_idx ON posthaste.entries_plain_N USING btree (queue_id, lane, xid, pos) WHERE (lane >= 0) -- 16
table erased
  message_id bigint not null
  pos bigint not null
  at timestamp with time zone not null default clock_timestamp()
  constraint erased_pkey PRIMARY KEY (message_id)
  index INDEX erased_pos ON posthaste.erased USING btree (pos)
  index UNIQUE INDEX erased_pkey ON posthaste.erased USING btree (message_id)
type failure_listed
  queue text
  subscription text
  kind text
  version text
  fingerprint text
  error text
  message_id bigint
  count bigint
  first_at timestamp with time zone
  last_at timestamp with time zone
type head
  message_id bigint
  pos bigint
  xid xid8
  queue_id integer
  lane smallint
  created_at timestamp with time zone
  due_at timestamp with time zone
  for_subscription smallint
  attempt smallint
  failures smallint
  losses smallint
  content_type text
  key text
  kind text
  reference text
  headers jsonb
  terms text[]
  story jsonb
table held_claims
  subscriber bigint not null
  claim bigint not null
  next_try timestamp with time zone not null
  tries integer not null default 0
  error text
  constraint held_claims_pkey PRIMARY KEY (subscriber, claim)
  index UNIQUE INDEX held_claims_pkey ON posthaste.held_claims USING btree (subscriber, claim)
partitioned table history partition by LIST (part)
  part smallint not null
  subscription smallint not null
  queue_id integer not null
  message_id bigint not null
  created_at timestamp with time zone not null
  settled_at timestamp with time zone not null
  expires_at timestamp with time zone not null
  erased_at timestamp with time zone
  state text not null
  content_type text
  key text
  kind text
  reference text
  headers jsonb
  terms text[]
  attempts jsonb not null
  payload bytea
  constraint history_pkey PRIMARY KEY (part, queue_id, message_id, subscription)
  index INDEX history_key ON ONLY posthaste.history USING btree (queue_id, key, message_id) WHERE (key IS NOT NULL)
  index INDEX history_message ON ONLY posthaste.history USING btree (message_id)
  index INDEX history_reference ON ONLY posthaste.history USING btree (queue_id, reference, message_id) WHERE (reference IS NOT NULL)
  index INDEX history_terms ON ONLY posthaste.history USING gin (terms) WITH (gin_pending_list_limit='256') WHERE (terms IS NOT NULL)
  index UNIQUE INDEX history_pkey ON ONLY posthaste.history USING btree (part, queue_id, message_id, subscription)
leaf history_N -- 16
  part smallint not null -- 16
  subscription smallint not null -- 16
  queue_id integer not null -- 16
  message_id bigint not null -- 16
  created_at timestamp with time zone not null -- 16
  settled_at timestamp with time zone not null -- 16
  expires_at timestamp with time zone not null -- 16
  erased_at timestamp with time zone -- 16
  state text not null -- 16
  content_type text -- 16
  key text -- 16
  kind text -- 16
  reference text -- 16
  headers jsonb -- 16
  terms text[] -- 16
  attempts jsonb not null -- 16
  payload bytea -- 16
  constraint history_N_pkey PRIMARY KEY (part, queue_id, message_id, subscription) -- 16
  index INDEX history_N_message_id_idx ON posthaste.history_N USING btree (message_id) -- 16
  index INDEX history_N_queue_id_key_message_id_idx ON posthaste.history_N USING btree (queue_id, key, message_id) WHERE (key IS NOT NULL) -- 16
  index INDEX history_N_queue_id_reference_message_id_idx ON posthaste.history_N USING btree (queue_id, reference, message_id) WHERE (reference IS NOT NULL) -- 16
  index INDEX history_N_terms_idx ON posthaste.history_N USING gin (terms) WITH (gin_pending_list_limit='256') WHERE (terms IS NOT NULL) -- 16
  index UNIQUE INDEX history_N_pkey ON posthaste.history_N USING btree (part, queue_id, message_id, subscription) -- 16
table history_aside
  reader bigint not null
  claim bigint not null
  constraint history_aside_pkey PRIMARY KEY (reader, claim)
  index UNIQUE INDEX history_aside_pkey ON posthaste.history_aside USING btree (reader, claim)
table history_cursors with (fillfactor=50)
  reader bigint not null
  seq bigint not null
  constraint history_cursors_pkey PRIMARY KEY (reader)
  index UNIQUE INDEX history_cursors_pkey ON posthaste.history_cursors USING btree (reader)
table history_parts
  part smallint not null
  until timestamp with time zone not null
  constraint history_parts_part_check CHECK (((part >= 0) AND (part <= 15)))
  constraint history_parts_pkey PRIMARY KEY (part)
  index UNIQUE INDEX history_parts_pkey ON posthaste.history_parts USING btree (part)
table idempotency_keys
  scope text not null
  key text not null
  request bytea not null
  ids bigint[] not null
  told jsonb
  until timestamp with time zone not null
  constraint idempotency_keys_pkey PRIMARY KEY (scope, key)
  index INDEX idempotency_keys_until ON posthaste.idempotency_keys USING btree (until)
  index UNIQUE INDEX idempotency_keys_pkey ON posthaste.idempotency_keys USING btree (scope, key)
table identity
  only_row boolean not null default true
  system_identifier bigint not null
  database_oid oid not null
  written_by xid
  installation uuid not null default gen_random_uuid()
  constraint identity_only_row_check CHECK (only_row)
  constraint identity_pkey PRIMARY KEY (only_row)
  index UNIQUE INDEX identity_pkey ON posthaste.identity USING btree (only_row)
table issued_tokens
  id integer not null generated always as identity
  name text not null
  hash bytea not null
  scopes text[] not null
  queues text[]
  created_at timestamp with time zone not null default clock_timestamp()
  created_by text not null
  expires_at timestamp with time zone
  last_used_at timestamp with time zone
  dropped_at timestamp with time zone
  dropped_by text
  constraint issued_tokens_hash_check CHECK ((octet_length(hash) = 32))
  constraint issued_tokens_name_check CHECK ((name ~ '^[a-z0-9_.-]{1,63}$'::text))
  constraint issued_tokens_pkey PRIMARY KEY (id)
  constraint issued_tokens_queues_check CHECK ((cardinality(queues) > 0))
  constraint issued_tokens_scopes_check CHECK (((cardinality(scopes) > 0) AND (scopes <@ ARRAY['read'::text, 'read:payload'::text, 'send'::text, 'receive'::text, 'operate'::text, 'admin'::text])))
  index UNIQUE INDEX issued_tokens_name ON posthaste.issued_tokens USING btree (name) WHERE (dropped_at IS NULL)
  index UNIQUE INDEX issued_tokens_pkey ON posthaste.issued_tokens USING btree (id)
sequence issued_tokens_id_seq integer start 1 increment 1 cache 1
table keys with (fillfactor=50)
  subscriber bigint not null
  hash bigint not null
  lane smallint not null
  early smallint not null default 0
  blocked boolean not null default false
  waits boolean not null default false
  low_ord xid8 not null default '0'::xid8
  low_id bigint not null default 0
  wake_at timestamp with time zone
  paused_at timestamp with time zone
  stopped_by bigint
  turn bigint
  tokens double precision
  tokens_at timestamp with time zone
  tokens_since timestamp without time zone default date_bin('00:05:00'::interval, (tokens_at AT TIME ZONE 'UTC'::text), '2000-01-01 00:00:00'::timestamp without time zone)
  key text not null
  constraint keys_pkey PRIMARY KEY (subscriber, key)
  index INDEX keys_lane ON posthaste.keys USING btree (subscriber, lane) WHERE (lane >= 0)
  index INDEX keys_paused ON posthaste.keys USING btree (subscriber, key) WHERE (paused_at IS NOT NULL)
  index INDEX keys_tokens ON posthaste.keys USING btree (subscriber, tokens_since) WHERE ((tokens IS NOT NULL) AND (NOT blocked) AND (paused_at IS NULL) AND (stopped_by IS NULL))
  index INDEX keys_turn ON posthaste.keys USING btree (subscriber, lane, turn) WHERE ((turn IS NOT NULL) AND (early = 0))
  index INDEX keys_turn_early ON posthaste.keys USING btree (subscriber, lane, turn) WHERE ((turn IS NOT NULL) AND (early > 0))
  index INDEX keys_waits ON posthaste.keys USING btree (subscriber, lane, hash) WHERE waits
  index UNIQUE INDEX keys_pkey ON posthaste.keys USING btree (subscriber, key)
table lane_wishes
  subscriber bigint not null
  lane smallint not null
  worker bigint not null
  at timestamp with time zone not null default clock_timestamp()
  constraint lane_wishes_pkey PRIMARY KEY (subscriber, lane)
  index UNIQUE INDEX lane_wishes_pkey ON posthaste.lane_wishes USING btree (subscriber, lane)
table lease_cursors with (fillfactor=50)
  subscriber bigint not null
  s pg_snapshot not null
  t timestamp with time zone not null
  constraint lease_cursors_pkey PRIMARY KEY (subscriber)
  index UNIQUE INDEX lease_cursors_pkey ON posthaste.lease_cursors USING btree (subscriber)
partitioned table leases partition by LIST (slot)
  slot bigint not null
  place smallint
  claim bigint not null
  subscriber bigint not null
  xid xid8 not null default pg_current_xact_id()
  until timestamp with time zone not null
  index INDEX leases_claim ON ONLY posthaste.leases USING btree (claim)
  index INDEX leases_until ON ONLY posthaste.leases USING btree (subscriber, until)
  index INDEX leases_xid ON ONLY posthaste.leases USING btree (subscriber, xid)
leaf leases_N with (autovacuum_enabled=off) -- 16
  slot bigint not null -- 16
  place smallint -- 16
  claim bigint not null -- 16
  subscriber bigint not null -- 16
  xid xid8 not null default pg_current_xact_id() -- 16
  until timestamp with time zone not null -- 16
  index INDEX leases_N_claim_idx ON posthaste.leases_N USING btree (claim) -- 16
  index INDEX leases_N_subscriber_until_idx ON posthaste.leases_N USING btree (subscriber, until) -- 16
  index INDEX leases_N_subscriber_xid_idx ON posthaste.leases_N USING btree (subscriber, xid) -- 16
table limit_refunds
  subscriber bigint not null
  tokens integer not null
table limit_states
  subscriber bigint not null
  id bigint not null
  at timestamp with time zone not null
  full_since timestamp with time zone
  tokens double precision
  open bigint[] not null
  constraint limit_states_pkey PRIMARY KEY (subscriber, id)
  index UNIQUE INDEX limit_states_pkey ON posthaste.limit_states USING btree (subscriber, id)
type live
  a bigint
  b bigint
  c bigint
  d bigint
  e bigint
  f bigint
type message_found
  message_id bigint
  queue text
  subscription text
  state text
  due_at timestamp with time zone
  key text
  kind text
  headers jsonb
  reference text
  terms text[]
  content_type text
  payload bytea
  created_at timestamp with time zone
  attempts jsonb
  erased_at timestamp with time zone
  version text
  options jsonb
type message_listed
  message_id bigint
  queue text
  subscription text
  state text
  due_at timestamp with time zone
  key text
  kind text
  headers jsonb
  reference text
  terms text[]
  content_type text
  created_at timestamp with time zone
  attempts jsonb
  erased_at timestamp with time zone
view messages
  message_id bigint
  queue text
  subscription text
  state text
  due_at timestamp with time zone
  key text
  kind text
  headers jsonb
  reference text
  terms text[]
  content_type text
  payload bytea
  created_at timestamp with time zone
  attempts jsonb
  erased_at timestamp with time zone
table migrations
  version integer not null
  name text not null
  breaking boolean not null
  applied_at timestamp with time zone not null default clock_timestamp()
  constraint migrations_pkey PRIMARY KEY (version)
  constraint migrations_version_check CHECK ((version > 0))
  index UNIQUE INDEX migrations_pkey ON posthaste.migrations USING btree (version)
partitioned table notes partition by LIST (slot)
  slot bigint not null
  claim bigint not null
  place smallint not null
  number integer not null
  last boolean not null default false
  cancel boolean not null default false
  progress real
  at timestamp with time zone not null default clock_timestamp()
  checkpoint jsonb
  progress_text text
  log text
  constraint notes_pkey PRIMARY KEY (slot, claim, place, number)
  index UNIQUE INDEX notes_pkey ON ONLY posthaste.notes USING btree (slot, claim, place, number)
leaf notes_N with (autovacuum_enabled=off) toast with (autovacuum_enabled=off) -- 16
  slot bigint not null -- 16
  claim bigint not null -- 16
  place smallint not null -- 16
  number integer not null -- 16
  last boolean not null default false -- 16
  cancel boolean not null default false -- 16
  progress real -- 16
  at timestamp with time zone not null default clock_timestamp() -- 16
  checkpoint jsonb -- 16
  progress_text text -- 16
  log text -- 16
  constraint notes_N_pkey PRIMARY KEY (slot, claim, place, number) -- 16
  index UNIQUE INDEX notes_N_pkey ON posthaste.notes_N USING btree (slot, claim, place, number) -- 16
unlogged table order_marks
partitioned table outcomes partition by LIST (slot)
  slot bigint not null
  place smallint not null
  attempt smallint not null
  claim bigint not null
  pos bigint not null
  message_id bigint not null
  reader bigint not null
  at timestamp with time zone not null default clock_timestamp()
  worker bigint
  duration real
  xid xid8 not null default pg_current_xact_id()
  due_at timestamp with time zone
  outcome text not null
  error text
  receipt jsonb
  terms text[]
  constraint outcomes_pkey PRIMARY KEY (slot, claim, place)
  index INDEX outcomes_xid ON ONLY posthaste.outcomes USING btree (xid)
  index UNIQUE INDEX outcomes_pkey ON ONLY posthaste.outcomes USING btree (slot, claim, place)
leaf outcomes_N with (autovacuum_enabled=off) toast with (autovacuum_enabled=off) -- 16
  slot bigint not null -- 16
  place smallint not null -- 16
  attempt smallint not null -- 16
  claim bigint not null -- 16
  pos bigint not null -- 16
  message_id bigint not null -- 16
  reader bigint not null -- 16
  at timestamp with time zone not null default clock_timestamp() -- 16
  worker bigint -- 16
  duration real -- 16
  xid xid8 not null default pg_current_xact_id() -- 16
  due_at timestamp with time zone -- 16
  outcome text not null -- 16
  error text -- 16
  receipt jsonb -- 16
  terms text[] -- 16
  constraint outcomes_N_pkey PRIMARY KEY (slot, claim, place) -- 16
  index INDEX outcomes_N_xid_idx ON posthaste.outcomes_N USING btree (xid) -- 16
  index UNIQUE INDEX outcomes_N_pkey ON posthaste.outcomes_N USING btree (slot, claim, place) -- 16
table parked
  subscriber bigint not null
  ord xid8 not null
  message_id bigint not null
  pos bigint
  not_before timestamp with time zone
  parked_at timestamp with time zone not null default clock_timestamp()
  created_at timestamp with time zone not null
  lane smallint not null
  attempt smallint not null
  failures smallint not null
  losses smallint not null
  losses_alone smallint not null
  ages_from timestamp with time zone
  key text not null
  reason text not null
  content_type text
  kind text
  reference text
  headers jsonb
  terms text[]
  trace text
  story jsonb
  payload bytea not null
  constraint parked_pkey PRIMARY KEY (subscriber, key, ord, message_id)
  index INDEX parked_message ON posthaste.parked USING btree (message_id, subscriber)
  index INDEX parked_reference ON posthaste.parked USING btree (reference) WHERE (reference IS NOT NULL)
  index INDEX parked_terms ON posthaste.parked USING gin (terms) WHERE (terms IS NOT NULL)
  index UNIQUE INDEX parked_pkey ON posthaste.parked USING btree (subscriber, key, ord, message_id)
type pause_listed
  id bigint
  what text
  queue text
  name text
  since timestamp with time zone
  by text
  reason text
  until timestamp with time zone
table pauses
  id bigint not null generated always as identity
  what text not null
  queue_id integer not null
  name text not null
  since timestamp with time zone not null default clock_timestamp()
  by text not null
  reason text
  until timestamp with time zone
  constraint pauses_pkey PRIMARY KEY (id)
  constraint pauses_what_check CHECK ((what = ANY (ARRAY['queue'::text, 'key'::text, 'kind'::text, 'schedule'::text])))
  index INDEX pauses_until ON posthaste.pauses USING btree (until) WHERE (until IS NOT NULL)
  index UNIQUE INDEX pauses_of ON posthaste.pauses USING btree (queue_id, what, name)
  index UNIQUE INDEX pauses_pkey ON posthaste.pauses USING btree (id)
sequence pauses_id_seq bigint start 1 increment 1 cache 1
sequence positions bigint start 1 increment 1 cache 1
table queue_settings
  id integer not null generated always as identity
  name text not null
  max_attempts integer not null default 20
  backoff_base interval not null default '00:00:01'::interval
  backoff_max interval not null default '01:00:00'::interval
  timeout interval not null default '00:00:30'::interval
  max_age interval
  max_payload integer not null default 1048576
  width smallint not null default 1
  prioritized boolean not null default false
  lanes smallint not null default 1
  mode text not null default 'at_least_once'::text
  ordered boolean not null default false
  on_dead text not null default 'continue'::text
  fair boolean not null default false
  concurrency integer
  rate double precision
  burst double precision
  key_concurrency integer
  key_rate double precision
  key_burst double precision
  limited boolean default ((concurrency IS NOT NULL) OR (rate IS NOT NULL))
  keyed boolean default (ordered OR fair OR (key_concurrency IS NOT NULL) OR (key_rate IS NOT NULL))
  retention interval
  retain_payload boolean not null default false
  kind_lanes text[] not null default '{}'::text[]
  kinds_aside text[]
  kinds_paused text[]
  kind_options jsonb
  owner text
  paused_at timestamp with time zone
  purged pg_snapshot
  purged_to bigint
  created_at timestamp with time zone not null default clock_timestamp()
  dropped_at timestamp with time zone
  constraint queue_settings_backoff_base_check CHECK ((backoff_base >= '00:00:00'::interval))
  constraint queue_settings_backoff_max_check CHECK ((backoff_max >= '00:00:00'::interval))
  constraint queue_settings_burst_check CHECK ((burst >= (1)::double precision))
  constraint queue_settings_concurrency_check CHECK (((concurrency >= 1) AND (concurrency <= 100000)))
  constraint queue_settings_key_burst_check CHECK ((key_burst >= (1)::double precision))
  constraint queue_settings_key_concurrency_check CHECK (((key_concurrency >= 1) AND (key_concurrency <= 100000)))
  constraint queue_settings_key_rate_check CHECK ((key_rate > (0)::double precision))
  constraint queue_settings_lanes_check CHECK (((lanes >= 1) AND (lanes <= 256)))
  constraint queue_settings_max_age_check CHECK (((max_age > '00:00:00'::interval) AND (max_age <= '36500 days'::interval)))
  constraint queue_settings_max_attempts_check CHECK (((max_attempts >= 1) AND (max_attempts <= 1000)))
  constraint queue_settings_max_payload_check CHECK (((max_payload >= 1) AND (max_payload <= 33554432)))
  constraint queue_settings_mode_check CHECK ((mode = ANY (ARRAY['at_least_once'::text, 'at_most_once'::text])))
  constraint queue_settings_name_check CHECK ((name ~ '^[a-z0-9_.-]{1,63}$'::text))
  constraint queue_settings_on_dead_check CHECK ((on_dead = ANY (ARRAY['continue'::text, 'stop'::text])))
  constraint queue_settings_pkey PRIMARY KEY (id)
  constraint queue_settings_rate_check CHECK ((rate > (0)::double precision))
  constraint queue_settings_retention_check CHECK (((retention > '00:00:00'::interval) AND (retention <= '36500 days'::interval)))
  constraint queue_settings_timeout_check CHECK ((timeout > '00:00:00'::interval))
  constraint queue_settings_width_check CHECK (((width >= 1) AND (width <= 64)))
  index UNIQUE INDEX queue_settings_name ON posthaste.queue_settings USING btree (name) WHERE (dropped_at IS NULL)
  index UNIQUE INDEX queue_settings_pkey ON posthaste.queue_settings USING btree (id)
sequence queue_settings_id_seq integer start 1 increment 1 cache 1
view queues
  queue text
  subscription text
  depth bigint
  in_flight bigint
  dead bigint
  sent bigint
  done bigint
  retried bigint
  lost bigint
  sent_per_second double precision
  done_per_second double precision
  oldest_age interval
  max_attempts integer
  backoff_base interval
  backoff_max interval
  timeout interval
  max_payload integer
  lanes smallint
  mode text
  paused_at timestamp with time zone
  created_at timestamp with time zone
  counted_at timestamp with time zone
  retention interval
  retain_payload boolean
  ordered boolean
  on_dead text
  key_concurrency integer
  fair boolean
  concurrency integer
  rate_limit jsonb
  key_rate_limit jsonb
  paused_keys text[]
  filter jsonb
  max_lag interval
  withdrawn bigint
  expired bigint
  max_age interval
  set_aside jsonb
  owner text
  kinds jsonb
  paused_kinds text[]
table registrations with (fillfactor=50)
  id bigint not null generated always as identity
  name text not null
  version text not null
  environment text
  lease interval not null
  started_at timestamp with time zone not null default clock_timestamp()
  heartbeat_at timestamp with time zone not null default clock_timestamp()
  lost_at timestamp with time zone
  ended_at timestamp with time zone
  cleared boolean not null default false
  oldest_open bigint not null default 0
  looked integer not null default 0
  kinds jsonb
  sinks jsonb
  load jsonb
  constraint registrations_pkey PRIMARY KEY (id)
  index UNIQUE INDEX registrations_pkey ON posthaste.registrations USING btree (id)
sequence registrations_id_seq bigint start 1 increment 1 cache 1
type sample_listed
  at timestamp with time zone
  queue text
  subscription text
  sent bigint
  done bigint
  retried bigint
  lost bigint
  expired bigint
  depth bigint
  in_flight bigint
  dead bigint
  oldest_age interval
partitioned table samples partition by LIST (part)
  part smallint not null
  at timestamp with time zone not null
  queue_id integer not null
  subscription smallint not null
  sent bigint not null
  done bigint not null
  retried bigint not null
  lost bigint not null
  expired bigint not null
  depth bigint not null
  in_flight bigint not null
  dead bigint not null
  oldest_age double precision not null
  index INDEX samples_at ON ONLY posthaste.samples USING btree (at)
leaf samples_N -- 6
  part smallint not null -- 6
  at timestamp with time zone not null -- 6
  queue_id integer not null -- 6
  subscription smallint not null -- 6
  sent bigint not null -- 6
  done bigint not null -- 6
  retried bigint not null -- 6
  lost bigint not null -- 6
  expired bigint not null -- 6
  depth bigint not null -- 6
  in_flight bigint not null -- 6
  dead bigint not null -- 6
  oldest_age double precision not null -- 6
  index INDEX samples_N_at_idx ON posthaste.samples_N USING btree (at) -- 6
table schedule_settings with (fillfactor=50)
  name text not null
  queue_id integer not null
  spec text not null
  cron cron
  every interval
  time_zone text not null
  catch_up text not null
  payload jsonb not null
  options jsonb not null
  next_at timestamp with time zone not null
  paused_at timestamp with time zone
  last_tick timestamp with time zone
  last_id bigint
  last_sent_at timestamp with time zone
  sent bigint not null default 0
  missed bigint not null default 0
  error text
  created_at timestamp with time zone not null default clock_timestamp()
  changed_at timestamp with time zone not null default clock_timestamp()
  constraint schedule_settings_catch_up_check CHECK ((catch_up = ANY (ARRAY['each'::text, 'once'::text, 'skip'::text])))
  constraint schedule_settings_check CHECK (((cron IS NULL) <> (every IS NULL)))
  constraint schedule_settings_every_check CHECK ((every >= '00:00:01'::interval))
  constraint schedule_settings_name_check CHECK ((name ~ '^[a-z0-9_.-]{1,63}$'::text))
  constraint schedule_settings_pkey PRIMARY KEY (name)
  constraint schedule_settings_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES queue_settings(id)
  index INDEX schedule_settings_next ON posthaste.schedule_settings USING btree (next_at) WHERE (paused_at IS NULL)
  index INDEX schedule_settings_queue ON posthaste.schedule_settings USING btree (queue_id)
  index UNIQUE INDEX schedule_settings_pkey ON posthaste.schedule_settings USING btree (name)
view schedules
  name text
  queue text
  spec text
  time_zone text
  catch_up text
  payload jsonb
  options jsonb
  next_at timestamp with time zone
  upcoming timestamp with time zone[]
  last_tick timestamp with time zone
  last_message_id bigint
  last_sent_at timestamp with time zone
  sent bigint
  missed bigint
  error text
  paused_at timestamp with time zone
  created_at timestamp with time zone
  changed_at timestamp with time zone
table settings
  only_row boolean not null default true
  slot_rows bigint not null default 2097152
  slot_bytes bigint not null default 402653184
  spare_slots integer not null default 6
  carry_after interval not null default '00:01:00'::interval
  constraint settings_only_row_check CHECK (only_row)
  constraint settings_pkey PRIMARY KEY (only_row)
  constraint settings_slot_bytes_check CHECK ((slot_bytes > 0))
  constraint settings_slot_rows_check CHECK (((slot_rows >= 1) AND (slot_rows <= 4194304)))
  constraint settings_spare_slots_check CHECK (((spare_slots >= 1) AND (spare_slots <= 15)))
  index UNIQUE INDEX settings_pkey ON posthaste.settings USING btree (only_row)
partitioned table settlements partition by LIST (slot)
  slot bigint not null
  part smallint not null
  number smallint not null
  fresh smallint not null
  claim bigint not null
  xid xid8 not null default pg_current_xact_id()
  reader bigint not null
  at timestamp with time zone not null default clock_timestamp()
  worker bigint
  duration real
  done smallint not null default 0
  bits bit varying not null
  constraint settlements_pkey PRIMARY KEY (slot, claim, part, number)
  index INDEX settlements_xid ON ONLY posthaste.settlements USING btree (xid)
  index UNIQUE INDEX settlements_pkey ON ONLY posthaste.settlements USING btree (slot, claim, part, number)
leaf settlements_N with (autovacuum_enabled=off) toast with (autovacuum_enabled=off) -- 16
  slot bigint not null -- 16
  part smallint not null -- 16
  number smallint not null -- 16
  fresh smallint not null -- 16
  claim bigint not null -- 16
  xid xid8 not null default pg_current_xact_id() -- 16
  reader bigint not null -- 16
  at timestamp with time zone not null default clock_timestamp() -- 16
  worker bigint -- 16
  duration real -- 16
  done smallint not null default 0 -- 16
  bits bit varying not null -- 16
  constraint settlements_N_pkey PRIMARY KEY (slot, claim, part, number) -- 16
  index INDEX settlements_N_xid_idx ON posthaste.settlements_N USING btree (xid) -- 16
  index UNIQUE INDEX settlements_N_pkey ON posthaste.settlements_N USING btree (slot, claim, part, number) -- 16
unlogged table since_crash
  only_row boolean not null default true
  at timestamp with time zone not null default clock_timestamp()
  started timestamp with time zone
  constraint since_crash_only_row_check CHECK (only_row)
  constraint since_crash_pkey PRIMARY KEY (only_row)
  index UNIQUE INDEX since_crash_pkey ON posthaste.since_crash USING btree (only_row)
unlogged table skipped
  at timestamp with time zone not null default clock_timestamp()
  index INDEX skipped_at ON posthaste.skipped USING btree (at)
sequence skipped_from bigint start 0 increment 1 cache 1
table slots with (fillfactor=50)
  slot smallint not null
  live boolean not null
  epoch bigint not null
  cleared_to bigint not null default '-1'::integer
  left_before xid8
  marked_by xid8
  opened_at timestamp with time zone not null default clock_timestamp()
  constraint slots_pkey PRIMARY KEY (slot)
  constraint slots_slot_check CHECK (((slot >= 0) AND (slot <= 15)))
  index UNIQUE INDEX slots_pkey ON posthaste.slots USING btree (slot)
partitioned table stats partition by LIST (part)
  part smallint not null
  at timestamp with time zone not null
  queue_id integer not null
  subscription smallint not null
  kind text not null
  version text not null
  worker text not null
  done bigint not null
  retried bigint not null
  failed bigint not null
  wait bigint[] not null
  run bigint[] not null
  errors jsonb
  index INDEX stats_at ON ONLY posthaste.stats USING btree (at)
  index INDEX stats_errors ON ONLY posthaste.stats USING btree (at) WHERE (errors IS NOT NULL)
leaf stats_N -- 6
  part smallint not null -- 6
  at timestamp with time zone not null -- 6
  queue_id integer not null -- 6
  subscription smallint not null -- 6
  kind text not null -- 6
  version text not null -- 6
  worker text not null -- 6
  done bigint not null -- 6
  retried bigint not null -- 6
  failed bigint not null -- 6
  wait bigint[] not null -- 6
  run bigint[] not null -- 6
  errors jsonb -- 6
  index INDEX stats_N_at_idx ON posthaste.stats_N USING btree (at) -- 6
  index INDEX stats_N_at_idx1 ON posthaste.stats_N USING btree (at) WHERE (errors IS NOT NULL) -- 6
type stats_listed
  at timestamp with time zone
  queue text
  subscription text
  kind text
  version text
  worker text
  done bigint
  retried bigint
  failed bigint
  wait bigint[]
  run bigint[]
table stragglers
  worker bigint not null
  claim bigint not null
  constraint stragglers_pkey PRIMARY KEY (worker, claim)
  index UNIQUE INDEX stragglers_pkey ON posthaste.stragglers USING btree (worker, claim)
table subscriptions
  queue_id integer not null
  number smallint not null
  name text not null
  starts text not null default 'now'::text
  scheduled boolean not null default false
  sifts boolean not null default false
  since pg_snapshot not null
  filter jsonb
  max_lag interval
  created_at timestamp with time zone not null default clock_timestamp()
  dropped_at timestamp with time zone
  constraint subscriptions_max_lag_check CHECK ((max_lag > '00:00:00'::interval))
  constraint subscriptions_name_check CHECK ((name ~ '^[a-z0-9_.-]{1,63}$'::text))
  constraint subscriptions_number_check CHECK (((number >= 0) AND (number <= 1023)))
  constraint subscriptions_pkey PRIMARY KEY (queue_id, number)
  constraint subscriptions_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES queue_settings(id)
  constraint subscriptions_starts_check CHECK ((starts = ANY (ARRAY['now'::text, 'oldest'::text])))
  index UNIQUE INDEX subscriptions_name ON posthaste.subscriptions USING btree (queue_id, name) WHERE (dropped_at IS NULL)
  index UNIQUE INDEX subscriptions_pkey ON posthaste.subscriptions USING btree (queue_id, number)
view tokens
  name text
  scopes text[]
  queues text[]
  created_at timestamp with time zone
  created_by text
  expires_at timestamp with time zone
  expired boolean
  last_used_at timestamp with time zone
table unique_keys
  queue_id integer not null
  key text not null
  message_id bigint not null
  until text not null
  attempt smallint not null
  constraint unique_keys_pkey PRIMARY KEY (queue_id, key)
  index INDEX unique_keys_message ON posthaste.unique_keys USING btree (message_id)
  index UNIQUE INDEX unique_keys_pkey ON posthaste.unique_keys USING btree (queue_id, key)
table unique_past
  message_id bigint not null
  queue_id integer not null
  key text not null
  until text not null
  constraint unique_past_pkey PRIMARY KEY (message_id)
  index UNIQUE INDEX unique_past_pkey ON posthaste.unique_past USING btree (message_id)
table unique_swept
  one boolean not null default true
  message_id bigint not null
  constraint unique_swept_one_check CHECK (one)
  constraint unique_swept_pkey PRIMARY KEY (one)
  index UNIQUE INDEX unique_swept_pkey ON posthaste.unique_swept USING btree (one)
partitioned table words partition by LIST (slot)
  slot bigint not null
  message_id bigint not null
  pos bigint not null
  xid xid8
  queue_id integer not null
  lane smallint not null
  word text not null
  index INDEX words_word ON ONLY posthaste.words USING btree (word, queue_id, message_id)
leaf words_N with (autovacuum_enabled=off) toast with (autovacuum_enabled=off) -- 16
  slot bigint not null -- 16
  message_id bigint not null -- 16
  pos bigint not null -- 16
  xid xid8 -- 16
  queue_id integer not null -- 16
  lane smallint not null -- 16
  word text not null -- 16
  index INDEX words_N_word_queue_id_message_id_idx ON posthaste.words_N USING btree (word, queue_id, message_id) -- 16
view workers
  id bigint
  name text
  version text
  state text
  lease interval
  started_at timestamp with time zone
  heartbeat_at timestamp with time zone
  lost_at timestamp with time zone
  ended_at timestamp with time zone
  load jsonb
  sinks jsonb
function ack(delivery_ids bigint, options anycompatible DEFAULT NULL::text) returns TABLE(delivery_id bigint, settled boolean) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function ack(delivery_ids bigint[], options anycompatible DEFAULT NULL::text) returns TABLE(delivery_id bigint, settled boolean) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function ack(delivery_ids text, options anycompatible DEFAULT NULL::text) returns TABLE(delivery_id bigint, settled boolean) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function admit() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function adopt() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function all_cursors(p_track integer, l live) returns TABLE(queue_id integer, subscription integer, lane integer, subscriber bigint, keyed boolean, filter jsonb, part integer, s0 pg_snapshot, s1 pg_snapshot, t1 timestamp with time zone, last_xid xid8, last_pos bigint) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function all_headers(headers jsonb, trace text) returns jsonb language sql stable parallel safe cost 100
function append_again(h head, p_due timestamp with time zone, p_for integer, p_content entries_other) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off
function arm(p_queue text, p_dozing boolean DEFAULT false, OUT queue_id integer, OUT armed text) returns record language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function aside_lanes(p_queue integer, p_kinds text[]) returns queue_settings language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function attempt_fault(p_options jsonb, p_once boolean) returns text language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function attempt_options(p_headers jsonb, p_kind text, q queue_settings, OUT most integer, OUT base double precision, OUT max double precision) returns record language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function await_key(p_key bigint, p_shared boolean, p_doing text, p_hint text) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, lock_timeout=5s
function bare_story(p_story jsonb) returns jsonb language sql immutable cost 100 set search_path=pg_catalog, pg_temp
function bell_key(queue_id integer) returns bigint language sql immutable parallel safe cost 100
function block_keys(p_subscriber bigint, p_lane integer, p_keys text[], p_ords xid8[], p_ids bigint[], p_waits boolean[] DEFAULT NULL::boolean[]) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off
function brief_story(p_story jsonb) returns jsonb language sql immutable cost 100 set search_path=pg_catalog, pg_temp
function cancel(message_id bigint, by text DEFAULT SESSION_USER) returns TABLE(subscription text, cancelled boolean, state text, requested boolean) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function carry_slot(p_slot integer) returns integer language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, enable_memoize=off, jit=off
function chart_block(p_at timestamp with time zone, p_hours boolean) returns integer language sql stable parallel safe cost 100 set search_path=pg_catalog, pg_temp
function chart_names(p_queues text[], p_subscription text) returns TABLE(queue_id integer, number smallint, queue text, subscription text, since timestamp with time zone) language sql stable cost 100 rows 100 set search_path=pg_catalog, pg_temp
function chart_span(p_from timestamp with time zone, p_before timestamp with time zone, p_step interval) returns chart_bounds language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function chart_time() returns timestamp with time zone language sql volatile cost 100 set search_path=pg_catalog, pg_temp
function check_array(p_array anyarray, p_name text) returns void language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function check_identity(p_environment text DEFAULT NULL::text, p_worker bigint DEFAULT NULL::bigint) returns void language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function check_ids(p_ids bigint[]) returns bigint[] language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function check_json(p_json jsonb, p_text text, p_field text DEFAULT 'payload'::text) returns void language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function check_kinds() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function check_name(p_name text, p_what text, p_field text DEFAULT 'name'::text) returns void language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function check_options(p_options jsonb, p_known text[], p_planned text[]) returns void language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function check_singles(p_deliveries bigint[]) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off
function checkpoint(delivery_id bigint, value json, options anycompatible DEFAULT NULL::text) returns boolean language sql volatile cost 100
function checkpoint(delivery_id bigint, value jsonb, options anycompatible DEFAULT NULL::text) returns boolean language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function checkpoint(delivery_id bigint, value text, options anycompatible DEFAULT NULL::text) returns boolean language sql volatile cost 100
function claim(p_worker bigint, p_number bigint, p_queue text, p_subscription text, p_max integer, p_single boolean DEFAULT false, p_idle boolean DEFAULT false, p_due boolean DEFAULT true, p_again boolean DEFAULT true, p_rows integer DEFAULT 0) returns TABLE(handed integer, wants_idle boolean, next_due double precision, timeout double precision, delivery_id bigint, message_id bigint, attempt smallint, key text, kind text, headers jsonb, payload bytea, content_type text, reference text, created_at timestamp with time zone, due_at timestamp with time zone, story jsonb, alone boolean, at_most_once boolean, rules smallint, trace text, kind_options jsonb) language plpgsql volatile security definer cost 100 rows 100 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function claim_keyed(q queue_settings, p_subscription integer, p_lane integer, p_max integer, p_holder bigint, p_number bigint, p_until timestamp with time zone, p_single boolean, p_alone boolean, p_wait boolean, OUT handed integer, OUT made claims[], OUT live live, OUT wants_idle boolean, OUT next_due timestamp with time zone, OUT other bigint, OUT expired integer) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function claim_lane(p_queue integer, p_subscription integer, p_lane integer, p_max integer, p_holder bigint, p_number bigint, p_until timestamp with time zone, p_single boolean, p_alone boolean, p_due boolean, p_wait boolean, p_closed boolean DEFAULT false, p_keys bigint[] DEFAULT NULL::bigint[], p_max_age interval DEFAULT NULL::interval, p_stop timestamp with time zone DEFAULT NULL::timestamp with time zone, p_paused text[] DEFAULT NULL::text[], OUT handed integer, OUT made claims[], OUT live live, OUT wants_idle boolean, OUT next_due timestamp with time zone, OUT expired integer) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function claim_open(c claims) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off
function claim_ruled(p_queue integer, p_subscription integer, p_max integer, p_holder bigint, p_number bigint, p_until timestamp with time zone, p_single boolean, p_alone boolean, p_due boolean, p_closed boolean DEFAULT false, p_order integer[] DEFAULT NULL::integer[], OUT handed integer, OUT made claims[], OUT live live, OUT wants_idle boolean, OUT next_due timestamp with time zone, OUT limited boolean) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function close_notes(c claims, p_ending bit varying) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off
function copy_claim(c claims, q queue_settings) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off
function copy_withdrawn(p_slot integer, p_max integer) returns integer language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off
function count_kept(u subscriptions) returns bigint language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, jit=off
function count_up() returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function create_queue(queue text, options anycompatible DEFAULT NULL::text, by text DEFAULT SESSION_USER) returns boolean language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function cron_field(p_text text, p_what text, p_low integer, p_high integer, p_names text[]) returns bigint language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function cron_wall(c cron, p_from timestamp without time zone) returns timestamp without time zone language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function cursor_of(p_reader bigint, l live) returns claims language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off
function dead_chosen(p_ids bigint[], p_filter jsonb, p_before bigint, p_max bigint, OUT f dead_filter, OUT ids bigint[]) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function dead_filter(p_filter jsonb) returns dead_filter language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function dead_found(f dead_filter, p_ids bigint[], p_before bigint, p_max integer, OUT message_ids bigint[], OUT cut_at bigint) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_sort=off, enable_incremental_sort=off, jit=off, max_parallel_workers_per_gather=0
function dead_matches(d dead_letter_entries, f dead_filter) returns boolean language sql immutable parallel safe cost 100
function dead_termed(p_term text) returns bigint[] language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_indexscan=off, jit=off
function dedupe(p_queues integer[], p_dedupe_keys text[], p_dedupe_windows double precision[], p_now timestamp with time zone, OUT ids bigint[], OUT fresh integer[]) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, jit=off
function deliveries_at(c claims, p_places integer[]) returns TABLE(place integer, pos bigint, message_id bigint, created_at timestamp with time zone, due_at timestamp with time zone, attempt smallint, failures smallint, losses smallint, losses_alone smallint, content_type text, key text, kind text, reference text, headers jsonb, terms text[], trace text, story jsonb, payload bytea, ord xid8, ages_from timestamp with time zone) language plpgsql stable cost 100 rows 10 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function deliveries_of(c claims) returns TABLE(place integer, pos bigint, message_id bigint, created_at timestamp with time zone, due_at timestamp with time zone, attempt smallint, failures smallint, losses smallint, losses_alone smallint, content_type text, key text, kind text, reference text, headers jsonb, terms text[], trace text, story jsonb, payload bytea, ord xid8) language sql stable cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function delivery_open(p_delivery bigint) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off
function delivery_queues(delivery_ids bigint[]) returns text[] language plpgsql stable security definer cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function discard(message_ids bigint, by text DEFAULT SESSION_USER, filter anycompatible DEFAULT NULL::text, before bigint DEFAULT NULL::bigint, max bigint DEFAULT 1000) returns SETOF bigint language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function discard(message_ids bigint[], by text DEFAULT SESSION_USER, filter anycompatible DEFAULT NULL::text, before bigint DEFAULT NULL::bigint, max bigint DEFAULT 1000) returns SETOF bigint language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off
function discard(message_ids text DEFAULT NULL::text, by text DEFAULT SESSION_USER, filter anycompatible DEFAULT NULL::text, before bigint DEFAULT NULL::bigint, max bigint DEFAULT 1000) returns SETOF bigint language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function doctor() returns TABLE("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0
function doctor_horizon() returns TABLE("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function doctor_late() returns TABLE("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function doctor_plans() returns TABLE("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function doctor_ring() returns TABLE("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function doctor_server() returns TABLE("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, jit=off
function doctor_settings() returns TABLE("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function doctor_stranded() returns TABLE("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off
function doctor_workers() returns TABLE("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function doze_key(queue_id integer) returns bigint language sql immutable parallel safe cost 100
function drop_queue(queue text, by text DEFAULT SESSION_USER, if_empty boolean DEFAULT false) returns boolean language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function due_idle(p_queue integer, p_lane integer, w claims, t timestamp with time zone, l live, OUT idle boolean, OUT next_due timestamp with time zone) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function due_is_for(s subscriptions, p_lane integer, p_xid xid8, p_pos bigint, p_due timestamp with time zone) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function due_slice(p_queue integer, p_subscription integer, p_lane integer, INOUT w claims, p_max integer, p_alone boolean, l live, OUT walked integer, OUT wants_idle boolean) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function edit_dead(p_id bigint, c entries_other, p_by text) returns bigint language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off
function edit_message(p_id bigint, p_changes jsonb, p_payload bytea, p_version text, p_by text) returns TABLE(id bigint, version text) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function edited(q queue_settings, p_key text, p_kind text, p_headers jsonb, p_reference text, p_terms text[], p_content_type text, p_payload bytea, p_changes jsonb, p_new bytea) returns entries_other language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function end_pause() returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function ends_of(p_claim bigint, p_poss bigint[], p_told boolean) returns TABLE(pos bigint, claimed_at timestamp with time zone, holder bigint, settled_at timestamp with time zone, duration real, outcome text, ended_at timestamp with time zone, took real, error text, receipt jsonb, terms text[], notes jsonb) language plpgsql stable cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, jit=off
function erase(term text, by text DEFAULT SESSION_USER, before bigint DEFAULT NULL::bigint, max bigint DEFAULT 1000) returns TABLE(message_id bigint, queue text, outcome text) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off
function expired_places(c claims, p_max_age interval, t timestamp with time zone, p_paused text[] DEFAULT NULL::text[]) returns bit varying language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function extend(delivery_ids bigint, lease interval, options anycompatible DEFAULT NULL::text) returns TABLE(delivery_id bigint, settled boolean, cancelled boolean) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function extend(delivery_ids bigint[], lease interval, options anycompatible DEFAULT NULL::text) returns TABLE(delivery_id bigint, settled boolean, cancelled boolean) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0, plan_cache_mode=force_generic_plan, enable_seqscan=off
function extend(delivery_ids text, lease interval, options anycompatible DEFAULT NULL::text) returns TABLE(delivery_id bigint, settled boolean, cancelled boolean) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function fail(delivery_id bigint, error text, options anycompatible DEFAULT NULL::text) returns TABLE(settled boolean, outcome text, due_at timestamp with time zone) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function fetch(p_worker bigint, p_number bigint, p_claims claims[] DEFAULT NULL::claims[], p_live live DEFAULT NULL::live) returns TABLE(numbered_from bigint, alone boolean, pos bigint, message_id bigint, created_at timestamp with time zone, due_at timestamp with time zone, attempt smallint, failures smallint, losses smallint, losses_alone smallint, content_type text, key text, kind text, reference text, headers jsonb, terms text[], trace text, story jsonb, payload bytea, ord xid8) language plpgsql stable security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function few_heads(p_queue integer, p_lanes integer, p_slot bigint, p_before bigint, p_max integer, OUT many boolean, OUT heads head[]) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off
function find_claim(p_reader bigint, p_xid xid8, p_pos bigint, p_due timestamp with time zone, l live, OUT fate text, OUT c claims) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function find_queue(p_queue text) returns integer language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function find_subscription(p_queue text, p_subscription text, OUT queue_id integer, OUT number integer, OUT lanes integer, OUT timeout double precision, OUT width integer, OUT at_most_once boolean) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function finish(p_claim claims, p_places integer[], p_outcomes text[], p_errors text[], p_waits double precision[] DEFAULT '{}'::double precision[], p_receipts jsonb[] DEFAULT '{}'::jsonb[], p_durations real[] DEFAULT '{}'::real[], p_terms jsonb[] DEFAULT '{}'::jsonb[], p_noted boolean DEFAULT true) returns TABLE(place integer, outcome text, due_at timestamp with time zone) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function first_heads(p_ids bigint[]) returns head[] language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=on, jit=off
function first_priority(p_prioritized boolean) returns integer language sql volatile cost 100
function first_snapshot() returns pg_snapshot language sql volatile cost 100 set search_path=pg_catalog, pg_temp
function fixed_options(a queue_settings, b queue_settings) returns TABLE(name text, why text) language sql immutable cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function forget_buckets() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off
function forget_cancelled() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off
function forget_charts() returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, lock_timeout=50ms
function forget_history() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, lock_timeout=50ms
function forget_rows() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off
function forget_unique() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, jit=off
function found_terms(p_terms text) returns jsonb language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function free_number(p_queue integer) returns smallint language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function fresh_slice(p_queue integer, p_lane integer, s0 pg_snapshot, s1 pg_snapshot, p_xid xid8, p_pos bigint, p_max integer, l live, OUT places integer, OUT first_xid xid8, OUT first_pos bigint, OUT last_xid xid8, OUT last_pos bigint) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function give_up(claim bigint, by text DEFAULT SESSION_USER, unnamed_too boolean DEFAULT false, OUT dead integer, OUT unnamed integer) returns record language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function handed_long_ago(h head, p_told smallint[]) returns SETOF smallint language plpgsql stable cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off
function has_line(p_subscriber bigint, p_lane integer, p_turns bigint[]) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off
function history_ids(p_queues integer[], p_reference text, p_key text, p_term text, p_before bigint, p_max integer) returns bigint[] language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_sort=off, enable_incremental_sort=off, jit=off, max_parallel_workers_per_gather=0
function history_of(p_ids bigint[]) returns SETOF history language plpgsql stable cost 100 rows 10 set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function history_part(p_expires timestamp with time zone, p_retention interval) returns smallint language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function hold_message(p_id bigint) returns TABLE(h head, subscription smallint, name text, state text, waits boolean, parked smallint) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function hold_readers(p_heads head[]) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off
function holds_slot(c claims, p_slot integer) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function idempotency_begin(p_scope text, p_key text, p_request bytea, OUT ids bigint[], OUT told jsonb) returns record language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp, enable_seqscan=off
function idempotency_end(p_scope text, p_key text, p_request bytea, p_ids bigint[], p_seconds double precision, p_told jsonb DEFAULT NULL::jsonb) returns void language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function ids_argument(p_ids text, p_name text) returns bigint[] language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function in_slots(slot bigint, a bigint, b bigint, c bigint, d bigint, e bigint, f bigint) returns boolean language sql immutable parallel safe cost 100
function insert_entries(p_queues text[], p_payloads bytea[], p_content_types text[], p_keys text[], p_kinds text[], p_headers jsonb[], p_references text[], p_terms jsonb[], p_delays double precision[], p_send_ats timestamp with time zone[], p_traces text[], p_wake boolean, p_priorities smallint[] DEFAULT NULL::smallint[], p_dedupe_keys text[] DEFAULT NULL::text[], p_dedupe_windows double precision[] DEFAULT NULL::double precision[], p_uniques jsonb[] DEFAULT NULL::jsonb[], OUT ids bigint[], OUT told text[]) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, jit=off
function is_for(s subscriptions, p_for integer, p_xid xid8, p_due timestamp with time zone, p_kind text, p_headers jsonb) returns boolean language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function is_json(p_content_type text) returns boolean language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function is_original() returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function json_argument(p_value anyelement, p_name text) returns jsonb language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function keep_history(p_slot integer) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, jit=off
function key_hash(key text) returns bigint language sql immutable parallel safe cost 100
function key_heads(p_queues integer[], p_key text, p_before bigint, p_max integer, OUT heads head[], OUT cut_at bigint) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function key_lane(key text, lanes integer) returns smallint language sql volatile parallel safe cost 100
function key_readers(p_queue text, p_key text) returns bigint[] language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function key_tokens(p_tokens double precision, p_at timestamp with time zone, p_rate double precision, p_burst double precision, t timestamp with time zone) returns double precision language sql immutable cost 100 set search_path=pg_catalog, pg_temp
function keyed_rows(c claims, l live) returns TABLE(place integer, pos bigint, message_id bigint, created_at timestamp with time zone, due_at timestamp with time zone, attempt smallint, failures smallint, losses smallint, losses_alone smallint, content_type text, key text, kind text, reference text, headers jsonb, terms text[], trace text, story jsonb, payload bytea, ord xid8, ages_from timestamp with time zone) language plpgsql stable cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function kind_settings(p_queue text, p_kind text) returns queue_settings language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function kinds_option(p_kinds jsonb) returns jsonb language sql immutable parallel safe cost 100 set search_path=pg_catalog, pg_temp
function lane_again(p_lane smallint, p_other_kind boolean, p_queue integer) returns smallint language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function lane_apply(p_subscriber bigint, p_lane integer, p_events jsonb, p_xids xid8[], p_poss bigint[], p_sifts boolean, OUT keys text[], OUT sifted bigint) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off
function lane_busy(p_claims bigint[], p_seen pg_snapshot) returns bigint[] language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, enable_memoize=off, jit=off
function lane_event(p_subscriber bigint, p_lane integer, p_objects jsonb, p_at timestamp with time zone) returns void language sql volatile cost 100 set search_path=pg_catalog, pg_temp
function lane_events(p_queue integer, p_subscription integer, p_lane integer, INOUT w claims, s pg_snapshot, t timestamp with time zone, l live, OUT events jsonb, OUT xids xid8[], OUT poss bigint[], OUT walked integer, OUT complete boolean) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function lane_of_round(p_round integer, p_width integer, p_first integer, p_start bigint) returns integer language sql immutable parallel safe cost 100
function lane_open(p_claims bigint[], p_holder bigint, p_seen pg_snapshot, OUT open bigint[], OUT other bigint, OUT unsettled bigint) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, enable_memoize=off, jit=off
function lanes_for(p_width integer, p_prioritized boolean, p_kind_lanes text[], p_aside text[], p_paused text[], p_kinds jsonb, p_start bigint) returns integer[] language sql volatile cost 100
function last_position(p_queue integer, p_slot bigint, p_before bigint) returns bigint language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_incremental_sort=off, jit=off, max_parallel_workers_per_gather=0
function last_time() returns timestamp with time zone language sql immutable cost 100 set search_path=pg_catalog, pg_temp
function late_done(c claims, p_late bit varying) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, lock_timeout=900ms, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off
function later_heads(p_ids bigint[]) returns SETOF head language plpgsql stable cost 100 rows 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_material=off, enable_hashjoin=off, enable_mergejoin=off, jit=off
function later_newest(p_queues integer[], p_before bigint, p_max integer, OUT message_ids bigint[], OUT cut_at bigint) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off
function leases_ended(p_subscriber bigint) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function left_out(p_queue integer, p_lane integer, p_subscriber bigint, p_filter jsonb, p_ords xid8[], p_poss bigint[]) returns text[] language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off
function let_go(q queue_settings, p_reader bigint, p_seq bigint, INOUT keys text[], INOUT busy bigint[], INOUT turn bigint, p_limit integer, p_before boolean, p_holder bigint, p_number bigint, p_until timestamp with time zone, p_single boolean, p_alone boolean, t timestamp with time zone, l live, OUT made claims, OUT wants_idle boolean) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off
function line_of(p_subscriber bigint, p_lane integer, INOUT turns bigint[], p_max integer, OUT keys text[]) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off
function line_up(p_subscriber bigint, p_keys text[], p_counts bigint[], INOUT turn bigint) returns bigint language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off
function list_actions(queue text DEFAULT NULL::text, message_id bigint DEFAULT NULL::bigint, before bigint DEFAULT NULL::bigint, max bigint DEFAULT 100) returns SETOF action_listed language plpgsql stable security definer cost 100 rows 100 set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, jit=off
function list_dead_letters(filter anycompatible DEFAULT NULL::text, message_ids bigint[] DEFAULT NULL::bigint[], before bigint DEFAULT NULL::bigint, max bigint DEFAULT 100) returns TABLE(message_id bigint, queue text, subscription text, key text, kind text, headers jsonb, reference text, terms text[], content_type text, payload bytea, created_at timestamp with time zone, died_at timestamp with time zone, error text, attempts jsonb, erased_at timestamp with time zone) language plpgsql stable security definer cost 100 rows 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function list_failures(queue text DEFAULT NULL::text, subscription text DEFAULT NULL::text, kind text DEFAULT NULL::text, time_from timestamp with time zone DEFAULT NULL::timestamp with time zone, max bigint DEFAULT 100) returns SETOF failure_listed language plpgsql volatile security definer cost 100 rows 100 set search_path=pg_catalog, pg_temp, jit=off
function list_messages(queue text DEFAULT NULL::text, reference text DEFAULT NULL::text, term text DEFAULT NULL::text, state text DEFAULT NULL::text, before bigint DEFAULT NULL::bigint, max bigint DEFAULT 100, key text DEFAULT NULL::text, kind text DEFAULT NULL::text, created_from timestamp with time zone DEFAULT NULL::timestamp with time zone) returns SETOF message_listed language plpgsql stable security definer cost 100 rows 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function list_pauses(queue text DEFAULT NULL::text, before bigint DEFAULT NULL::bigint, max bigint DEFAULT 100) returns SETOF pause_listed language plpgsql stable security definer cost 100 rows 100 set search_path=pg_catalog, pg_temp
function list_samples(queues text[] DEFAULT NULL::text[], total boolean DEFAULT false, time_from timestamp with time zone DEFAULT NULL::timestamp with time zone, time_before timestamp with time zone DEFAULT NULL::timestamp with time zone, step interval DEFAULT NULL::interval) returns SETOF sample_listed language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, jit=off
function list_stats(queue text DEFAULT NULL::text, subscription text DEFAULT NULL::text, kind text DEFAULT NULL::text, time_from timestamp with time zone DEFAULT NULL::timestamp with time zone, time_before timestamp with time zone DEFAULT NULL::timestamp with time zone, step interval DEFAULT NULL::interval, group_by text[] DEFAULT NULL::text[]) returns SETOF stats_listed language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function live_slots() returns live language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function lock_key(family integer, id bigint) returns bigint language sql immutable parallel safe cost 100
function lock_lanes(p_queue integer, p_subscription integer DEFAULT NULL::integer) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function lock_pause(p_what text, p_queue integer, p_name text) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function lock_queue(p_queue integer, p_what text, p_shared boolean DEFAULT false) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function lock_reader(p_reader bigint, p_wait boolean) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function log_tail(p_log text, p_bytes integer) returns text language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function look(p_queue integer, p_subscription integer, p_lanes integer[], OUT ready boolean, OUT next_due double precision) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function maintain() returns TABLE(task text, count bigint, detail text) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0
function mark_entered(p_epoch bigint) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function message(message_id bigint) returns SETOF message_found language plpgsql stable security definer cost 100 rows 1 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function message_rows(p_heads head[], p_ids bigint[], p_told boolean DEFAULT true) returns TABLE(message_id bigint, queue_id integer, subscription smallint, subscription_name text, state text, due_at timestamp with time zone, key text, kind text, headers jsonb, reference text, terms text[], content_type text, created_at timestamp with time zone, attempts jsonb, erased_at timestamp with time zone, kept boolean, payload_pos bigint, payload bytea) language plpgsql stable cost 100 rows 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function message_state(p_id bigint, p_subscription integer, p_at tid, p_told boolean, OUT state text, OUT due_at timestamp with time zone, OUT attempts jsonb) returns record language plpgsql stable security definer cost 100000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function message_states(p_heads head[], p_told boolean DEFAULT true) returns TABLE(h head, subscription smallint, subscription_name text, state text, due_at timestamp with time zone, attempts jsonb) language plpgsql stable cost 100 rows 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function message_version(content_type text, key text, kind text, headers jsonb, reference text, terms text[], payload bytea) returns text language plpgsql immutable parallel safe cost 100 set search_path=pg_catalog, pg_temp
function more_of(content_type text, reference text, headers jsonb, terms jsonb) returns jsonb language sql stable parallel safe cost 100
function move_mark(p_worker bigint) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, enable_memoize=off, jit=off
function must_flush() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function named_heads(p_queues integer[], p_reference text, p_term text, p_before bigint, p_max integer) returns SETOF head language plpgsql stable cost 100 rows 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off, max_parallel_workers_per_gather=0
function newest_heads(p_queue integer, p_before bigint, p_max integer) returns SETOF head language plpgsql stable cost 100 rows 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function next_tick(c cron, p_every interval, p_zone text, p_after timestamp with time zone) returns timestamp with time zone language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function next_token(p_subscriber bigint, p_lane integer, p_after timestamp with time zone) returns timestamp with time zone language sql volatile cost 100 set search_path=pg_catalog, pg_temp
function no_dead_letter(p_ids bigint[]) returns void language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off
function no_wake() returns boolean language sql stable cost 100
function not_here(p_environment text DEFAULT NULL::text, OUT message text, OUT hint text) returns record language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function note(p_deliveries bigint[], p_checkpoints jsonb[], p_progress real[], p_texts text[], p_logs text[], p_lease interval DEFAULT NULL::interval) returns TABLE(n integer, recorded boolean, cancelled boolean) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function note_single(p_delivery bigint, p_checkpoint jsonb, p_progress real, p_text text, p_options jsonb) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function notes_of(p_slot bigint, p_claim bigint, p_place integer) returns jsonb language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, jit=off
function oldest_due(s pg_snapshot, l live) returns TABLE(queue_id integer, subscription integer, since timestamp with time zone) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function oldest_fresh(s pg_snapshot, l live) returns TABLE(queue_id integer, subscription integer, since timestamp with time zone) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function oldest_slot() returns TABLE(slot integer, since timestamp with time zone, blocker text, queue text, subscription text) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function oldest_waiting() returns TABLE(queue_id integer, subscription integer, since timestamp with time zone) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function open_claims(p_worker bigint) returns SETOF claims language plpgsql volatile cost 100 rows 10 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, enable_memoize=off, jit=off
function open_places(c claims) returns integer[] language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off
function option_attempts(p_options jsonb) returns jsonb language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function option_boolean(p_options jsonb, p_name text, p_default boolean) returns boolean language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function option_changes(a queue_settings, b queue_settings) returns jsonb language sql stable cost 100 set search_path=pg_catalog, pg_temp, IntervalStyle=postgres
function option_int(p_options jsonb, p_name text, p_min bigint, p_max bigint) returns integer language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function option_interval(p_options jsonb, p_name text, p_days integer DEFAULT NULL::integer) returns interval language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function option_kinds(p_option jsonb, p_has jsonb, p_once boolean) returns jsonb language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function option_rate(p_options jsonb, p_name text, OUT rate double precision, OUT burst double precision) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function option_text(p_options jsonb, p_name text) returns text language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function option_time(p_options jsonb, p_name text) returns timestamp with time zone language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function options_kept(p_new jsonb, p_old jsonb) returns jsonb language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function ord_now() returns xid8 language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function ordered_slice(p_queue integer, p_lane integer, s0 pg_snapshot, s1 pg_snapshot, p_ord xid8, p_pos bigint, p_max integer, l live, OUT ords xid8[], OUT poss bigint[], OUT keys text[]) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function other_heads(p_ids bigint[]) returns head[] language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off
function overdue_places(c claims) returns integer[] language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function park(q queue_settings, c claims, l live, p_keys text[], p_ords xid8[], p_poss bigint[], p_why text[], t timestamp with time zone, OUT again text[], OUT counts bigint[]) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off
function park_ahead(p_subscriber bigint, p_lane integer, p_filter jsonb, p_ords xid8[], p_poss bigint[]) returns bigint language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off
function parked_newest(p_queues integer[], p_key text, p_before bigint, p_max integer, OUT message_ids bigint[], OUT cut_at bigint) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off, max_parallel_workers_per_gather=0
function part_lanes(p_queue integer) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function pass_log(q queue_settings, INOUT c claims, INOUT busy bigint[], p_wanted integer, p_look integer, p_all boolean, p_sifts boolean, p_filter jsonb, p_holder bigint, p_number bigint, p_until timestamp with time zone, p_single boolean, s pg_snapshot, t timestamp with time zone, l live, OUT made claims, OUT again text[], OUT counts bigint[], OUT drained boolean) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_mergejoin=off, enable_nestloop=off
function passes(p_filter jsonb, p_kind text, p_headers jsonb) returns boolean language plpgsql immutable parallel safe cost 100 set search_path=pg_catalog, pg_temp
function patience() returns interval language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function pause_key(queue text, key text, by text DEFAULT SESSION_USER, reason text DEFAULT NULL::text, until timestamp with time zone DEFAULT NULL::timestamp with time zone) returns boolean language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function pause_kind(queue text, kind text, by text DEFAULT SESSION_USER, reason text DEFAULT NULL::text, until timestamp with time zone DEFAULT NULL::timestamp with time zone) returns boolean language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function pause_note(p_queue integer) returns text language sql stable cost 100 set search_path=pg_catalog, pg_temp
function pause_queue(queue text, by text DEFAULT SESSION_USER, reason text DEFAULT NULL::text, until timestamp with time zone DEFAULT NULL::timestamp with time zone) returns boolean language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function plain_headers(headers jsonb) returns boolean language plpgsql immutable parallel safe cost 100 set search_path=pg_catalog, pg_temp
function progress(delivery_id bigint, progress double precision, progress_text text DEFAULT NULL::text, options anycompatible DEFAULT NULL::text) returns boolean language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function purge(queue text, by text DEFAULT SESSION_USER) returns TABLE(subscription text, purged bigint) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off
function put_again(p_id bigint, p_due timestamp with time zone, p_content entries_other) returns TABLE(subscription text, moved boolean, state text, queue_id integer) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off
function put_claim(c claims, p_holder bigint, p_number bigint, p_until timestamp with time zone, p_single boolean, p_closed boolean DEFAULT false) returns claims language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function put_note(p_delivery bigint, p_checkpoint jsonb, p_progress real, p_text text, p_log text, p_cancel boolean DEFAULT false) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, jit=off
function queue_limits(o jsonb, q queue_settings) returns queue_settings language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function queue_options(o jsonb, q queue_settings, p_is queue_settings) returns queue_settings language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function rate_option(p_rate double precision, p_burst double precision) returns jsonb language sql immutable parallel safe cost 100 set search_path=pg_catalog, pg_temp
function read_ahead(q queue_settings, c claims, INOUT a ahead, INOUT turn bigint, p_filter jsonb, s pg_snapshot, l live) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function read_committed(p_what text) returns void language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function reader_key(queue_id integer, subscription integer, lane integer, track integer) returns bigint language sql immutable parallel safe cost 100
function ready_due(p_queue integer, p_subscription integer, p_lane integer, p_max integer, s pg_snapshot, l live, OUT places bigint, OUT since timestamp with time zone) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function rebase(same_ids boolean DEFAULT false, by text DEFAULT SESSION_USER) returns TABLE(rebased boolean, waiting bigint, again bigint) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function rebase_append() returns bigint language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, jit=off, enable_nestloop=off
function rebase_collect() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, jit=off
function rebase_counters() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, jit=off
function rebase_cursors() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function rebase_keys() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, jit=off
function rebase_ring(p_start bigint) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function rebase_sent_here() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function receive(queue text, max bigint DEFAULT 1, lease interval DEFAULT NULL::interval, options anycompatible DEFAULT NULL::text) returns TABLE(delivery_id bigint, message_id bigint, attempt integer, key text, kind text, headers jsonb, payload_json jsonb, payload bytea, content_type text, created_at timestamp with time zone, due_at timestamp with time zone, reference text, story jsonb, checkpoint jsonb) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0, plan_cache_mode=force_generic_plan, jit=off
function receive_rows(p_queue text, p_max bigint, p_lease interval, p_subscription text) returns TABLE(delivery_id bigint, message_id bigint, attempt integer, key text, kind text, headers jsonb, payload bytea, content_type text, created_at timestamp with time zone, due_at timestamp with time zone, reference text, story jsonb) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function reclaim(OUT slot integer, OUT reason text) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, lock_timeout=50ms
function refuse_at_most_once(p_queue integer) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function refuse_contents(p_queue integer, p_subscription integer) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function refuse_copy() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function refuse_options(a queue_settings, b queue_settings, o jsonb) returns void language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function release(delivery_ids bigint, options anycompatible DEFAULT NULL::text) returns TABLE(delivery_id bigint, settled boolean) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function release(delivery_ids bigint[], options anycompatible DEFAULT NULL::text) returns TABLE(delivery_id bigint, settled boolean) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function release(delivery_ids text, options anycompatible DEFAULT NULL::text) returns TABLE(delivery_id bigint, settled boolean) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function renew_tokens(q queue_settings, p_subscriber bigint, p_lane integer, p_now timestamp with time zone, t timestamp with time zone) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off
function replace_message(p_id bigint, p_content entries_other, p_unique jsonb) returns text language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function replay(message_ids bigint, by text DEFAULT SESSION_USER, filter anycompatible DEFAULT NULL::text, before bigint DEFAULT NULL::bigint, max bigint DEFAULT 1000) returns SETOF bigint language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function replay(message_ids bigint[], by text DEFAULT SESSION_USER, filter anycompatible DEFAULT NULL::text, before bigint DEFAULT NULL::bigint, max bigint DEFAULT 1000) returns SETOF bigint language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off
function replay(message_ids text DEFAULT NULL::text, by text DEFAULT SESSION_USER, filter anycompatible DEFAULT NULL::text, before bigint DEFAULT NULL::bigint, max bigint DEFAULT 1000) returns SETOF bigint language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function report_stats(p_worker bigint, p_stats jsonb) returns void language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function request_cancel(h head, p_subscription integer) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, lock_timeout=900ms, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off
function reschedule(message_id bigint, send_at timestamp with time zone, by text DEFAULT SESSION_USER) returns TABLE(subscription text, rescheduled boolean, state text) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off
function rescue() returns integer language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0
function rescue_apart(c claims, p_places integer[]) returns integer language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function rescue_claim(p_claim bigint) returns integer language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, lock_timeout=100ms
function rescue_in(p_worker bigint) returns double precision language sql stable security definer cost 100 set search_path=pg_catalog, pg_temp
function rescue_leases(p_subscriber bigint) returns integer language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function rescue_workers() returns integer language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function resume_key(queue text, key text, by text DEFAULT SESSION_USER) returns boolean language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function resume_kind(queue text, kind text, by text DEFAULT SESSION_USER) returns boolean language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function resume_queue(queue text, by text DEFAULT SESSION_USER) returns boolean language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function rewrite(p_id bigint, p_content entries_other, p_due timestamp with time zone, p_most double precision, OUT subscription text, OUT state text) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off
function ring(queue_id integer) returns void language sql volatile cost 100
function ring_epochs() returns SETOF bigint language sql stable cost 100 rows 16 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function ring_seen(OUT last bigint, OUT readers bigint[]) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function roll_up() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, jit=off
function rotate() returns text language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function run_message(message_id bigint, by text DEFAULT SESSION_USER) returns TABLE(subscription text, due boolean, state text, held_by text[]) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off
function schedule_drop(name text, by text DEFAULT SESSION_USER) returns boolean language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function schedule_next(spec text, time_zone text DEFAULT 'UTC'::text, after timestamp with time zone DEFAULT clock_timestamp()) returns timestamp with time zone language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function schedule_pause(name text, by text DEFAULT SESSION_USER, reason text DEFAULT NULL::text, until timestamp with time zone DEFAULT NULL::timestamp with time zone) returns boolean language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function schedule_put(name text, queue text, spec text, payload json, options anycompatible DEFAULT NULL::text, by text DEFAULT SESSION_USER) returns timestamp with time zone language sql volatile cost 100
function schedule_put(name text, queue text, spec text, payload jsonb, options anycompatible DEFAULT NULL::text, by text DEFAULT SESSION_USER) returns timestamp with time zone language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function schedule_put(name text, queue text, spec text, payload text DEFAULT '{}'::text, options anycompatible DEFAULT NULL::text, by text DEFAULT SESSION_USER) returns timestamp with time zone language sql volatile cost 100
function schedule_resume(name text, by text DEFAULT SESSION_USER) returns timestamp with time zone language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function schedule_run(name text, by text DEFAULT SESSION_USER) returns bigint language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function schedule_send(s schedule_settings, p_queue text, p_headers jsonb) returns bigint language sql volatile cost 100 set search_path=pg_catalog, pg_temp
function schedule_spec(p_spec text, OUT cron cron, OUT every interval) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function send(queue text, payload json, options anycompatible DEFAULT NULL::text) returns bigint language sql volatile cost 100
function send(queue text, payload jsonb, options anycompatible DEFAULT NULL::text) returns bigint language sql volatile cost 100
function send(queue text, payload text, options anycompatible DEFAULT NULL::text) returns bigint language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function send_bytes(queue text, payload bytea, options anycompatible DEFAULT NULL::text) returns bigint language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function send_many(queue text, messages json, options anycompatible DEFAULT NULL::text) returns SETOF bigint language sql volatile cost 100 rows 1000
function send_many(queue text, messages jsonb, options anycompatible DEFAULT NULL::text) returns SETOF bigint language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function send_many(queue text, messages text, options anycompatible DEFAULT NULL::text) returns SETOF bigint language sql volatile cost 100 rows 1000
function send_options(p_options jsonb, p_more text[], OUT content_type text, OUT key text, OUT kind text, OUT headers jsonb, OUT reference text, OUT terms jsonb, OUT delay double precision, OUT send_at timestamp with time zone, OUT trace text, OUT wake boolean, OUT priority smallint, OUT dedupe_key text, OUT dedupe_window double precision, OUT unique_options jsonb) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function send_row(p_queue text, p_payload bytea, p_content_type text, p_key text, p_kind text, p_headers jsonb, p_reference text, p_terms jsonb, p_delay double precision, p_send_at timestamp with time zone, p_trace text, p_wake boolean, p_priority smallint DEFAULT NULL::smallint, p_dedupe_key text DEFAULT NULL::text, p_dedupe_window double precision DEFAULT NULL::double precision) returns bigint language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function send_rows(p_queues text[], p_payloads bytea[], p_content_types text[], p_keys text[], p_kinds text[], p_headers jsonb[], p_references text[], p_terms jsonb[], p_delays double precision[], p_send_ats timestamp with time zone[], p_traces text[], p_wake boolean, p_priorities smallint[] DEFAULT NULL::smallint[], p_dedupe_keys text[] DEFAULT NULL::text[], p_dedupe_windows double precision[] DEFAULT NULL::double precision[]) returns bigint[] language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function send_told(p_queues text[], p_payloads bytea[], p_content_types text[], p_keys text[], p_kinds text[], p_headers jsonb[], p_references text[], p_terms jsonb[], p_delays double precision[], p_send_ats timestamp with time zone[], p_traces text[], p_wake boolean, p_priorities smallint[], p_dedupe_keys text[], p_dedupe_windows double precision[], p_uniques jsonb[]) returns TABLE(id bigint, duplicate boolean, replaced boolean, state text) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function send_unique(queue text, payload json, options anycompatible DEFAULT NULL::text) returns TABLE(message_id bigint, duplicate boolean, replaced boolean, state text) language sql volatile cost 100 rows 1000
function send_unique(queue text, payload jsonb, options anycompatible DEFAULT NULL::text) returns TABLE(message_id bigint, duplicate boolean, replaced boolean, state text) language sql volatile cost 100 rows 1000
function send_unique(queue text, payload text, options anycompatible DEFAULT NULL::text) returns TABLE(message_id bigint, duplicate boolean, replaced boolean, state text) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function set_aside() returns TABLE(queue_id integer, subscription integer, kind text, waiting bigint, since timestamp with time zone, known boolean, paused boolean) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function set_pause(p_what text, p_queue integer, p_name text, p_by text, p_reason text, p_until timestamp with time zone) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function set_paused_aside(c claims, p_paused text[]) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan
function settle(p_claims bigint[], p_done bit varying[], p_deliveries bigint[] DEFAULT '{}'::bigint[], p_outcomes text[] DEFAULT '{}'::text[], p_errors text[] DEFAULT '{}'::text[], p_waits double precision[] DEFAULT '{}'::double precision[], p_receipts text[] DEFAULT '{}'::text[], p_durations real[] DEFAULT '{}'::real[], p_strict boolean DEFAULT false, p_terms text[] DEFAULT '{}'::text[]) returns TABLE(delivery_id bigint, settled boolean, outcome text, due_at timestamp with time zone, field text, refused text) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off
function settle_claim(c claims, p_wanted bit varying, p_done bit varying, p_duration real) returns bit varying language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off
function settle_expired(c claims, p_closed boolean, p_paused text[] DEFAULT NULL::text[]) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan
function settle_singles(p_deliveries bigint[], p_outcome text, p_receipts jsonb, p_error text, p_options jsonb, p_terms jsonb) returns TABLE(delivery_id bigint, settled boolean, outcome text, due_at timestamp with time zone) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function sift_from_here(p_reader bigint) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function sift_keyed(c claims, p_filter jsonb, l live) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off
function sift_on(p_reader bigint, l live) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function sifted_slice(p_queue integer, p_lane integer, INOUT c claims, s pg_snapshot, p_max integer, l live, OUT walked integer) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function skip_ids() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function skip_slot(p_slot integer) returns bigint language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function slot_blocker(p_slot integer) returns text language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function slot_entered(p_slot integer) returns text language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function slot_held(p_slot integer) returns text language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, enable_memoize=off, jit=off
function slot_of(pos bigint) returns bigint language sql immutable parallel safe cost 100
function slot_start(p_last bigint, p_slot integer) returns bigint language sql immutable cost 100 set search_path=pg_catalog, pg_temp
function slot_unread(p_slot integer) returns text language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, enable_memoize=off, jit=off
function snapshot_now() returns pg_snapshot language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function split_payload(p_payload bytea, p_content_type text, OUT payload_json jsonb, OUT payload bytea) returns record language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function stats_sums(p_span chart_bounds, p_queue text, p_subscription text, p_kind text, p_by text[]) returns TABLE(queue_id integer, number smallint, at timestamp with time zone, queue text, subscription text, kind text, version text, worker text, done bigint, retried bigint, failed bigint, wait bigint[], run bigint[]) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp, jit=off
function story_add(p_story jsonb, p_attempt jsonb) returns jsonb language sql immutable cost 100 set search_path=pg_catalog, pg_temp
function story_noted(p_story jsonb, p_attempt jsonb) returns jsonb language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function subscribe(queue text, subscription text, options anycompatible DEFAULT NULL::text, by text DEFAULT SESSION_USER) returns boolean language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function subscription_filter(p_filter jsonb) returns jsonb language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function summarize() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, lock_timeout=50ms
function take_samples() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, jit=off
function take_unique(p_keys text[], p_options jsonb[], p_contents entries_other[], INOUT ids bigint[], INOUT fresh integer[], OUT told text[]) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, jit=off
function taken(c claims, p_xid xid8, p_pos bigint, p_due timestamp with time zone) returns boolean language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function taken_back(p_queues integer[], p_ids bigint[]) returns SETOF bigint language plpgsql stable cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=on, jit=off
function texts_of(p_texts jsonb) returns text[] language plpgsql immutable parallel safe cost 100 set search_path=pg_catalog, pg_temp
function tick(OUT sent integer, OUT missed bigint, OUT next_tick double precision, OUT ended integer) returns record language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function tick_in() returns double precision language sql stable security definer cost 100 set search_path=pg_catalog, pg_temp
function tick_schedule(s schedule_settings, p_now timestamp with time zone, OUT sent integer, OUT missed bigint) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function tick_send(s schedule_settings, p_queue text, p_tick timestamp with time zone) returns bigint language sql volatile cost 100 set search_path=pg_catalog, pg_temp
function to_carry(p_queue integer, p_pos bigint, p_for integer) returns boolean language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, enable_seqscan=off
function token_add(name text, scopes text[], options anycompatible DEFAULT NULL::text, by text DEFAULT SESSION_USER) returns text language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function token_drop(name text, by text DEFAULT SESSION_USER) returns boolean language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function token_hashes(used text[] DEFAULT '{}'::text[]) returns TABLE(name text, hash bytea, scopes text[], queues text[]) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function token_time(t timestamp with time zone) returns timestamp with time zone language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function too_old(p_created_at timestamp with time zone, p_ages_from timestamp with time zone, p_max_age interval, t timestamp with time zone) returns boolean language sql immutable parallel safe cost 100
function truncate_slot(p_slot integer, p_readers bigint[], p_wait boolean DEFAULT true) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, lock_timeout=50ms
function unique_again(p_ids bigint[]) returns SETOF bigint language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, jit=off
function unique_held(p_ids bigint[], p_untils text[], p_attempts smallint[]) returns TABLE(message_id bigint, state text) language plpgsql stable cost 100 rows 10 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=on, jit=off
function unique_key(p_key text, p_kind text, p_content_type text, p_payload bytea) returns text language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function unique_option(p_unique jsonb) returns jsonb language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function unpark(p_subscriber bigint, p_ids bigint[], p_outcome text, p_seen pg_snapshot DEFAULT NULL::pg_snapshot) returns bigint language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off
function unsubscribe(queue text, subscription text, by text DEFAULT SESSION_USER, if_empty boolean DEFAULT false) returns boolean language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function upcoming_ticks(s schedule_settings, p_count integer) returns timestamp with time zone[] language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function update_message(message_id bigint, changes anycompatible, version text DEFAULT NULL::text, by text DEFAULT SESSION_USER) returns TABLE(id bigint, new_version text) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function update_queue(queue text, options anycompatible, by text DEFAULT SESSION_USER) returns jsonb language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function vitals(OUT slots_free integer, OUT slots_wanted integer, OUT slot_age interval, OUT alive integer, OUT overdue integer, OUT heartbeat_age interval, OUT doorbells integer, OUT upkeep_age interval) returns record language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function wake_key(p_subscriber bigint, p_lane integer, p_key text, p_at timestamp with time zone, p_now timestamp with time zone, t timestamp with time zone) returns void language sql volatile cost 100 set search_path=pg_catalog, pg_temp
function wall_time(p_zone text, p_wall timestamp without time zone) returns timestamp with time zone language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function warm_up() returns void language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0, jit=off
function window_ranges(s0 pg_snapshot, s1 pg_snapshot, OUT lo bigint[], OUT hi bigint[]) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function withdraw(h head, p_subscription integer, p_outcome text) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function without_places(c claims) returns claims language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function words_of(p_reference text, p_terms text[]) returns text[] language plpgsql immutable parallel safe cost 100 set search_path=pg_catalog, pg_temp
function worker_heartbeat(p_worker bigint, p_load jsonb DEFAULT NULL::jsonb) returns bigint[] language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function worker_look(p_worker bigint, p_queues text[], p_subscriptions text[]) returns TABLE(ready boolean, next_due double precision, maintain boolean, rescue boolean) language plpgsql volatile security definer cost 100 rows 1000 set max_parallel_workers_per_gather=0, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, enable_memoize=off, jit=off
function worker_overdue(w registrations) returns boolean language sql volatile cost 100 set search_path=pg_catalog, pg_temp
function worker_register(p_name text, p_version text, p_lease interval, p_environment text DEFAULT NULL::text, p_kinds jsonb DEFAULT NULL::jsonb, p_sinks jsonb DEFAULT NULL::jsonb) returns bigint language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function worker_unregister(p_worker bigint) returns void language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function worker_unsettled(p_worker bigint, p_upto bigint) returns SETOF bigint language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0
function zone_change(p_zone text, p_low timestamp with time zone, p_high timestamp with time zone) returns timestamp with time zone language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function zone_name(p_zone text) returns text language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, TimeZone=UTC
grant EXECUTE on function "fetch"(bigint,bigint,claims[],live) to posthaste_admin
grant EXECUTE on function "fetch"(bigint,bigint,claims[],live) to posthaste_receiver
grant EXECUTE on function ack(bigint,anycompatible) to posthaste_admin
grant EXECUTE on function ack(bigint,anycompatible) to posthaste_receiver
grant EXECUTE on function ack(bigint[],anycompatible) to posthaste_admin
grant EXECUTE on function ack(bigint[],anycompatible) to posthaste_receiver
grant EXECUTE on function ack(text,anycompatible) to posthaste_admin
grant EXECUTE on function ack(text,anycompatible) to posthaste_receiver
grant EXECUTE on function all_headers(jsonb,text) to posthaste_admin
grant EXECUTE on function arm(text,boolean) to posthaste_admin
grant EXECUTE on function arm(text,boolean) to posthaste_receiver
grant EXECUTE on function bell_key(integer) to posthaste_admin
grant EXECUTE on function bell_key(integer) to posthaste_receiver
grant EXECUTE on function cancel(bigint,text) to posthaste_admin
grant EXECUTE on function checkpoint(bigint,json,anycompatible) to posthaste_admin
grant EXECUTE on function checkpoint(bigint,json,anycompatible) to posthaste_receiver
grant EXECUTE on function checkpoint(bigint,jsonb,anycompatible) to posthaste_admin
grant EXECUTE on function checkpoint(bigint,jsonb,anycompatible) to posthaste_receiver
grant EXECUTE on function checkpoint(bigint,text,anycompatible) to posthaste_admin
grant EXECUTE on function checkpoint(bigint,text,anycompatible) to posthaste_receiver
grant EXECUTE on function claim(bigint,bigint,text,text,integer,boolean,boolean,boolean,boolean,integer) to posthaste_admin
grant EXECUTE on function claim(bigint,bigint,text,text,integer,boolean,boolean,boolean,boolean,integer) to posthaste_receiver
grant EXECUTE on function create_queue(text,anycompatible,text) to posthaste_admin
grant EXECUTE on function cron_wall(cron,timestamp without time zone) to posthaste_admin
grant EXECUTE on function delivery_queues(bigint[]) to posthaste_admin
grant EXECUTE on function discard(bigint,text,anycompatible,bigint,bigint) to posthaste_admin
grant EXECUTE on function discard(bigint[],text,anycompatible,bigint,bigint) to posthaste_admin
grant EXECUTE on function discard(text,text,anycompatible,bigint,bigint) to posthaste_admin
grant EXECUTE on function doctor() to posthaste_admin
grant EXECUTE on function doze_key(integer) to posthaste_admin
grant EXECUTE on function doze_key(integer) to posthaste_receiver
grant EXECUTE on function drop_queue(text,text,boolean) to posthaste_admin
grant EXECUTE on function edit_message(bigint,jsonb,bytea,text,text) to posthaste_admin
grant EXECUTE on function erase(text,text,bigint,bigint) to posthaste_admin
grant EXECUTE on function extend(bigint,interval,anycompatible) to posthaste_admin
grant EXECUTE on function extend(bigint,interval,anycompatible) to posthaste_receiver
grant EXECUTE on function extend(bigint[],interval,anycompatible) to posthaste_admin
grant EXECUTE on function extend(bigint[],interval,anycompatible) to posthaste_receiver
grant EXECUTE on function extend(text,interval,anycompatible) to posthaste_admin
grant EXECUTE on function extend(text,interval,anycompatible) to posthaste_receiver
grant EXECUTE on function fail(bigint,text,anycompatible) to posthaste_admin
grant EXECUTE on function fail(bigint,text,anycompatible) to posthaste_receiver
grant EXECUTE on function give_up(bigint,text,boolean) to posthaste_admin
grant EXECUTE on function idempotency_begin(text,text,bytea) to posthaste_admin
grant EXECUTE on function idempotency_begin(text,text,bytea) to posthaste_sender
grant EXECUTE on function idempotency_end(text,text,bytea,bigint[],double precision,jsonb) to posthaste_admin
grant EXECUTE on function idempotency_end(text,text,bytea,bigint[],double precision,jsonb) to posthaste_sender
grant EXECUTE on function is_for(subscriptions,integer,xid8,timestamp with time zone,text,jsonb) to posthaste_admin
grant EXECUTE on function kinds_option(jsonb) to posthaste_admin
grant EXECUTE on function list_actions(text,bigint,bigint,bigint) to posthaste_admin
grant EXECUTE on function list_dead_letters(anycompatible,bigint[],bigint,bigint) to posthaste_admin
grant EXECUTE on function list_failures(text,text,text,timestamp with time zone,bigint) to posthaste_admin
grant EXECUTE on function list_messages(text,text,text,text,bigint,bigint,text,text,timestamp with time zone) to posthaste_admin
grant EXECUTE on function list_pauses(text,bigint,bigint) to posthaste_admin
grant EXECUTE on function list_samples(text[],boolean,timestamp with time zone,timestamp with time zone,interval) to posthaste_admin
grant EXECUTE on function list_stats(text,text,text,timestamp with time zone,timestamp with time zone,interval,text[]) to posthaste_admin
grant EXECUTE on function lock_key(integer,bigint) to posthaste_admin
grant EXECUTE on function lock_key(integer,bigint) to posthaste_receiver
grant EXECUTE on function maintain() to posthaste_admin
grant EXECUTE on function maintain() to posthaste_receiver
grant EXECUTE on function message(bigint) to posthaste_admin
grant EXECUTE on function message(bigint) to posthaste_receiver
grant EXECUTE on function message_state(bigint,integer,tid,boolean) to posthaste_admin
grant EXECUTE on function next_tick(cron,interval,text,timestamp with time zone) to posthaste_admin
grant EXECUTE on function not_here(text) to posthaste_admin
grant EXECUTE on function not_here(text) to posthaste_sender
grant EXECUTE on function note(bigint[],jsonb[],real[],text[],text[],interval) to posthaste_admin
grant EXECUTE on function note(bigint[],jsonb[],real[],text[],text[],interval) to posthaste_receiver
grant EXECUTE on function oldest_slot() to posthaste_admin
grant EXECUTE on function oldest_waiting() to posthaste_admin
grant EXECUTE on function passes(jsonb,text,jsonb) to posthaste_admin
grant EXECUTE on function pause_key(text,text,text,text,timestamp with time zone) to posthaste_admin
grant EXECUTE on function pause_kind(text,text,text,text,timestamp with time zone) to posthaste_admin
grant EXECUTE on function pause_queue(text,text,text,timestamp with time zone) to posthaste_admin
grant EXECUTE on function progress(bigint,double precision,text,anycompatible) to posthaste_admin
grant EXECUTE on function progress(bigint,double precision,text,anycompatible) to posthaste_receiver
grant EXECUTE on function purge(text,text) to posthaste_admin
grant EXECUTE on function rate_option(double precision,double precision) to posthaste_admin
grant EXECUTE on function rebase(boolean,text) to posthaste_admin
grant EXECUTE on function receive(text,bigint,interval,anycompatible) to posthaste_admin
grant EXECUTE on function receive(text,bigint,interval,anycompatible) to posthaste_receiver
grant EXECUTE on function receive_rows(text,bigint,interval,text) to posthaste_admin
grant EXECUTE on function receive_rows(text,bigint,interval,text) to posthaste_receiver
grant EXECUTE on function release(bigint,anycompatible) to posthaste_admin
grant EXECUTE on function release(bigint,anycompatible) to posthaste_receiver
grant EXECUTE on function release(bigint[],anycompatible) to posthaste_admin
grant EXECUTE on function release(bigint[],anycompatible) to posthaste_receiver
grant EXECUTE on function release(text,anycompatible) to posthaste_admin
grant EXECUTE on function release(text,anycompatible) to posthaste_receiver
grant EXECUTE on function replay(bigint,text,anycompatible,bigint,bigint) to posthaste_admin
grant EXECUTE on function replay(bigint[],text,anycompatible,bigint,bigint) to posthaste_admin
grant EXECUTE on function replay(text,text,anycompatible,bigint,bigint) to posthaste_admin
grant EXECUTE on function report_stats(bigint,jsonb) to posthaste_admin
grant EXECUTE on function report_stats(bigint,jsonb) to posthaste_receiver
grant EXECUTE on function reschedule(bigint,timestamp with time zone,text) to posthaste_admin
grant EXECUTE on function rescue() to posthaste_admin
grant EXECUTE on function rescue() to posthaste_receiver
grant EXECUTE on function rescue_in(bigint) to posthaste_admin
grant EXECUTE on function rescue_in(bigint) to posthaste_receiver
grant EXECUTE on function resume_key(text,text,text) to posthaste_admin
grant EXECUTE on function resume_kind(text,text,text) to posthaste_admin
grant EXECUTE on function resume_queue(text,text) to posthaste_admin
grant EXECUTE on function run_message(bigint,text) to posthaste_admin
grant EXECUTE on function schedule_drop(text,text) to posthaste_admin
grant EXECUTE on function schedule_next(text,text,timestamp with time zone) to posthaste_admin
grant EXECUTE on function schedule_pause(text,text,text,timestamp with time zone) to posthaste_admin
grant EXECUTE on function schedule_put(text,text,text,json,anycompatible,text) to posthaste_admin
grant EXECUTE on function schedule_put(text,text,text,jsonb,anycompatible,text) to posthaste_admin
grant EXECUTE on function schedule_put(text,text,text,text,anycompatible,text) to posthaste_admin
grant EXECUTE on function schedule_resume(text,text) to posthaste_admin
grant EXECUTE on function schedule_run(text,text) to posthaste_admin
grant EXECUTE on function send(text,json,anycompatible) to posthaste_admin
grant EXECUTE on function send(text,json,anycompatible) to posthaste_sender
grant EXECUTE on function send(text,jsonb,anycompatible) to posthaste_admin
grant EXECUTE on function send(text,jsonb,anycompatible) to posthaste_sender
grant EXECUTE on function send(text,text,anycompatible) to posthaste_admin
grant EXECUTE on function send(text,text,anycompatible) to posthaste_sender
grant EXECUTE on function send_bytes(text,bytea,anycompatible) to posthaste_admin
grant EXECUTE on function send_bytes(text,bytea,anycompatible) to posthaste_sender
grant EXECUTE on function send_many(text,json,anycompatible) to posthaste_admin
grant EXECUTE on function send_many(text,json,anycompatible) to posthaste_sender
grant EXECUTE on function send_many(text,jsonb,anycompatible) to posthaste_admin
grant EXECUTE on function send_many(text,jsonb,anycompatible) to posthaste_sender
grant EXECUTE on function send_many(text,text,anycompatible) to posthaste_admin
grant EXECUTE on function send_many(text,text,anycompatible) to posthaste_sender
grant EXECUTE on function send_row(text,bytea,text,text,text,jsonb,text,jsonb,double precision,timestamp with time zone,text,boolean,smallint,text,double precision) to posthaste_admin
grant EXECUTE on function send_row(text,bytea,text,text,text,jsonb,text,jsonb,double precision,timestamp with time zone,text,boolean,smallint,text,double precision) to posthaste_sender
grant EXECUTE on function send_rows(text[],bytea[],text[],text[],text[],jsonb[],text[],jsonb[],double precision[],timestamp with time zone[],text[],boolean,smallint[],text[],double precision[]) to posthaste_admin
grant EXECUTE on function send_rows(text[],bytea[],text[],text[],text[],jsonb[],text[],jsonb[],double precision[],timestamp with time zone[],text[],boolean,smallint[],text[],double precision[]) to posthaste_sender
grant EXECUTE on function send_told(text[],bytea[],text[],text[],text[],jsonb[],text[],jsonb[],double precision[],timestamp with time zone[],text[],boolean,smallint[],text[],double precision[],jsonb[]) to posthaste_admin
grant EXECUTE on function send_told(text[],bytea[],text[],text[],text[],jsonb[],text[],jsonb[],double precision[],timestamp with time zone[],text[],boolean,smallint[],text[],double precision[],jsonb[]) to posthaste_sender
grant EXECUTE on function send_unique(text,json,anycompatible) to posthaste_admin
grant EXECUTE on function send_unique(text,json,anycompatible) to posthaste_sender
grant EXECUTE on function send_unique(text,jsonb,anycompatible) to posthaste_admin
grant EXECUTE on function send_unique(text,jsonb,anycompatible) to posthaste_sender
grant EXECUTE on function send_unique(text,text,anycompatible) to posthaste_admin
grant EXECUTE on function send_unique(text,text,anycompatible) to posthaste_sender
grant EXECUTE on function set_aside() to posthaste_admin
grant EXECUTE on function settle(bigint[],bit varying[],bigint[],text[],text[],double precision[],text[],real[],boolean,text[]) to posthaste_admin
grant EXECUTE on function settle(bigint[],bit varying[],bigint[],text[],text[],double precision[],text[],real[],boolean,text[]) to posthaste_receiver
grant EXECUTE on function subscribe(text,text,anycompatible,text) to posthaste_admin
grant EXECUTE on function texts_of(jsonb) to posthaste_admin
grant EXECUTE on function tick() to posthaste_admin
grant EXECUTE on function tick() to posthaste_receiver
grant EXECUTE on function tick_in() to posthaste_admin
grant EXECUTE on function tick_in() to posthaste_receiver
grant EXECUTE on function token_add(text,text[],anycompatible,text) to posthaste_admin
grant EXECUTE on function token_drop(text,text) to posthaste_admin
grant EXECUTE on function token_hashes(text[]) to posthaste_admin
grant EXECUTE on function unsubscribe(text,text,text,boolean) to posthaste_admin
grant EXECUTE on function upcoming_ticks(schedule_settings,integer) to posthaste_admin
grant EXECUTE on function update_message(bigint,anycompatible,text,text) to posthaste_admin
grant EXECUTE on function update_queue(text,anycompatible,text) to posthaste_admin
grant EXECUTE on function vitals() to posthaste_admin
grant EXECUTE on function wall_time(text,timestamp without time zone) to posthaste_admin
grant EXECUTE on function warm_up() to posthaste_admin
grant EXECUTE on function warm_up() to posthaste_receiver
grant EXECUTE on function worker_heartbeat(bigint,jsonb) to posthaste_admin
grant EXECUTE on function worker_heartbeat(bigint,jsonb) to posthaste_receiver
grant EXECUTE on function worker_look(bigint,text[],text[]) to posthaste_admin
grant EXECUTE on function worker_look(bigint,text[],text[]) to posthaste_receiver
grant EXECUTE on function worker_overdue(registrations) to posthaste_admin
grant EXECUTE on function worker_register(text,text,interval,text,jsonb,jsonb) to posthaste_admin
grant EXECUTE on function worker_register(text,text,interval,text,jsonb,jsonb) to posthaste_receiver
grant EXECUTE on function worker_unregister(bigint) to posthaste_admin
grant EXECUTE on function worker_unregister(bigint) to posthaste_receiver
grant EXECUTE on function worker_unsettled(bigint,bigint) to posthaste_admin
grant EXECUTE on function worker_unsettled(bigint,bigint) to posthaste_receiver
grant EXECUTE on function zone_change(text,timestamp with time zone,timestamp with time zone) to posthaste_admin
grant USAGE on schema posthaste to posthaste_admin
grant USAGE on schema posthaste to posthaste_receiver
grant USAGE on schema posthaste to posthaste_sender
grant SELECT on table action_records to posthaste_admin
grant SELECT on table actions to posthaste_admin
grant SELECT on table ahead to posthaste_admin
grant SELECT on table ahead_keys to posthaste_admin
grant SELECT on table applied to posthaste_admin
grant SELECT on table cancel_requests to posthaste_admin
grant SELECT on table cancelled to posthaste_admin
grant SELECT on table carried to posthaste_admin
grant SELECT on table charted to posthaste_admin
grant SELECT on table claims to posthaste_admin
grant SELECT on table claims_N to posthaste_admin -- 16
grant SELECT on table counted to posthaste_admin
grant SELECT on table counters to posthaste_admin
grant SELECT on table dead_letter_entries to posthaste_admin
grant SELECT on table dead_letters to posthaste_admin
grant SELECT on table dedupe_keys to posthaste_admin
grant SELECT on table entries to posthaste_admin
grant SELECT on table entries_other to posthaste_admin
grant SELECT on table entries_other_N to posthaste_admin -- 16
grant SELECT on table entries_plain to posthaste_admin
grant SELECT on table entries_plain_N to posthaste_admin -- 16
grant SELECT on table erased to posthaste_admin
grant SELECT on table held_claims to posthaste_admin
grant SELECT on table history to posthaste_admin
grant SELECT on table history_N to posthaste_admin -- 16
grant SELECT on table history_aside to posthaste_admin
grant SELECT on table history_cursors to posthaste_admin
grant SELECT on table history_parts to posthaste_admin
grant SELECT on table idempotency_keys to posthaste_admin
grant SELECT on table identity to posthaste_admin
grant SELECT on table issued_tokens to posthaste_admin
grant SELECT on table keys to posthaste_admin
grant SELECT on table lane_wishes to posthaste_admin
grant SELECT on table lease_cursors to posthaste_admin
grant SELECT on table leases to posthaste_admin
grant SELECT on table leases_N to posthaste_admin -- 16
grant SELECT on table limit_refunds to posthaste_admin
grant SELECT on table limit_states to posthaste_admin
grant SELECT on table messages to posthaste_admin
grant SELECT on table migrations to posthaste_admin
grant SELECT on table migrations to posthaste_receiver
grant SELECT on table migrations to posthaste_sender
grant SELECT on table notes to posthaste_admin
grant SELECT on table notes_N to posthaste_admin -- 16
grant SELECT on table order_marks to posthaste_admin
grant SELECT on table outcomes to posthaste_admin
grant SELECT on table outcomes_N to posthaste_admin -- 16
grant SELECT on table parked to posthaste_admin
grant SELECT on table pauses to posthaste_admin
grant SELECT on table queue_settings to posthaste_admin
grant SELECT on table queues to posthaste_admin
grant SELECT on table registrations to posthaste_admin
grant SELECT on table samples to posthaste_admin
grant SELECT on table samples_N to posthaste_admin -- 6
grant SELECT on table schedule_settings to posthaste_admin
grant SELECT on table schedules to posthaste_admin
grant SELECT on table settings to posthaste_admin
grant SELECT on table settlements to posthaste_admin
grant SELECT on table settlements_N to posthaste_admin -- 16
grant SELECT on table since_crash to posthaste_admin
grant SELECT on table skipped to posthaste_admin
grant SELECT on table slots to posthaste_admin
grant SELECT on table stats to posthaste_admin
grant SELECT on table stats_N to posthaste_admin -- 6
grant SELECT on table stragglers to posthaste_admin
grant SELECT on table subscriptions to posthaste_admin
grant SELECT on table tokens to posthaste_admin
grant SELECT on table unique_keys to posthaste_admin
grant SELECT on table unique_past to posthaste_admin
grant SELECT on table unique_swept to posthaste_admin
grant SELECT on table words to posthaste_admin
grant SELECT on table words_N to posthaste_admin -- 16
grant SELECT on table workers to posthaste_admin

-- What migrate makes of schema posthaste, one line per thing; a number after
-- the dashes counts leaves of the ring that are alike in it. Written by
-- go test ./sql -run Golden -update, and reviewed like code.
table actions
  id bigint not null generated always as identity
  at timestamp with time zone not null default clock_timestamp()
  by text not null
  action text not null
  message_id bigint
  queue_id integer
  details jsonb
  constraint actions_pkey PRIMARY KEY (id)
  index INDEX actions_message ON posthaste.actions USING btree (message_id)
  index UNIQUE INDEX actions_pkey ON posthaste.actions USING btree (id)
sequence actions_id_seq bigint start 1 increment 1 cache 1
table applied
  only_row boolean not null default true
  hash text not null default ''::text
  objects text[] not null default '{}'::text[]
  applied_at timestamp with time zone not null default clock_timestamp()
  constraint applied_only_row_check CHECK (only_row)
  constraint applied_pkey PRIMARY KEY (only_row)
  index UNIQUE INDEX applied_pkey ON posthaste.applied USING btree (only_row)
table cancelled
  pos bigint not null
  subscriber bigint not null
  outcome text not null
  at timestamp with time zone not null default clock_timestamp()
  constraint cancelled_pkey PRIMARY KEY (pos, subscriber)
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
  s0 pg_snapshot
  s1 pg_snapshot
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
  s0 pg_snapshot -- 16
  s1 pg_snapshot -- 16
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
  dropped bigint not null default 0
  before_sent bigint not null default 0
  before_done bigint not null default 0
  before_at timestamp with time zone
  counted_at timestamp with time zone not null default clock_timestamp()
  constraint counters_pkey PRIMARY KEY (queue_id, subscription)
  index UNIQUE INDEX counters_pkey ON posthaste.counters USING btree (queue_id, subscription)
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
  index INDEX dead_letter_entries_message ON posthaste.dead_letter_entries USING btree (message_id)
  index INDEX dead_letter_entries_reference ON posthaste.dead_letter_entries USING btree (queue_id, reference, message_id) WHERE (reference IS NOT NULL)
  index INDEX dead_letter_entries_terms ON posthaste.dead_letter_entries USING gin (terms) WHERE (terms IS NOT NULL)
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
partitioned table entries partition by LIST ((((pos >> 22) & (15)::bigint)))
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
  content_type text
  key text
  kind text
  reference text
  headers jsonb
  terms text[]
  trace text
  story jsonb
  payload bytea not null storage e
  constraint entries_check CHECK ((GREATEST(octet_length(key), octet_length(kind), octet_length(reference), octet_length(content_type), octet_length(trace), ((octet_length(payload) - 1) >> 17)) <= 255))
  constraint entries_due_at_check CHECK (((due_at IS NULL) OR isfinite(due_at)))
  constraint entries_headers_check CHECK (((headers IS NULL) OR plain_headers(headers)))
  index INDEX entries_due ON ONLY posthaste.entries USING btree (queue_id, lane, due_at, pos) WHERE (due_at IS NOT NULL)
  index INDEX entries_due_xid ON ONLY posthaste.entries USING btree (queue_id, lane, xid, pos) WHERE (due_at IS NOT NULL)
  index INDEX entries_fresh ON ONLY posthaste.entries USING btree (queue_id, lane, xid, pos) WHERE ((due_at IS NULL) AND (ord IS NULL))
  index INDEX entries_message ON ONLY posthaste.entries USING btree (message_id) WHERE (message_id IS NOT NULL)
  index INDEX entries_ordered ON ONLY posthaste.entries USING btree (queue_id, lane, ord, pos) WHERE (ord IS NOT NULL)
  index INDEX entries_pos ON ONLY posthaste.entries USING brin (pos) WITH (pages_per_range='32')
  index INDEX entries_reference ON ONLY posthaste.entries USING btree (queue_id, reference, pos) WHERE (reference IS NOT NULL)
  index INDEX entries_terms ON ONLY posthaste.entries USING gin (terms) WHERE (terms IS NOT NULL)
leaf entries_N with (autovacuum_enabled=off) toast with (autovacuum_enabled=off) -- 16
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
  content_type text -- 16
  key text -- 16
  kind text -- 16
  reference text -- 16
  headers jsonb -- 16
  terms text[] -- 16
  trace text -- 16
  story jsonb -- 16
  payload bytea not null storage e -- 16
  constraint entries_check CHECK ((GREATEST(octet_length(key), octet_length(kind), octet_length(reference), octet_length(content_type), octet_length(trace), ((octet_length(payload) - 1) >> 17)) <= 255)) -- 16
  constraint entries_due_at_check CHECK (((due_at IS NULL) OR isfinite(due_at))) -- 16
  constraint entries_headers_check CHECK (((headers IS NULL) OR plain_headers(headers))) -- 16
  index INDEX entries_N_message_id_idx ON posthaste.entries_N USING btree (message_id) WHERE (message_id IS NOT NULL) -- 16
  index INDEX entries_N_pos_idx ON posthaste.entries_N USING brin (pos) WITH (pages_per_range='32') -- 16
  index INDEX entries_N_queue_id_lane_due_at_pos_idx ON posthaste.entries_N USING btree (queue_id, lane, due_at, pos) WHERE (due_at IS NOT NULL) -- 16
  index INDEX entries_N_queue_id_lane_ord_pos_idx ON posthaste.entries_N USING btree (queue_id, lane, ord, pos) WHERE (ord IS NOT NULL) -- 16
  index INDEX entries_N_queue_id_lane_xid_pos_idx ON posthaste.entries_N USING btree (queue_id, lane, xid, pos) WHERE ((due_at IS NULL) AND (ord IS NULL)) -- 16
  index INDEX entries_N_queue_id_lane_xid_pos_idx1 ON posthaste.entries_N USING btree (queue_id, lane, xid, pos) WHERE (due_at IS NOT NULL) -- 16
  index INDEX entries_N_queue_id_reference_pos_idx ON posthaste.entries_N USING btree (queue_id, reference, pos) WHERE (reference IS NOT NULL) -- 16
  index INDEX entries_N_terms_idx ON posthaste.entries_N USING gin (terms) WHERE (terms IS NOT NULL) -- 16
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
  constraint held_claims_pkey PRIMARY KEY (subscriber, claim)
  index UNIQUE INDEX held_claims_pkey ON posthaste.held_claims USING btree (subscriber, claim)
table identity
  only_row boolean not null default true
  system_identifier bigint not null
  database_oid oid not null
  installation uuid not null default gen_random_uuid()
  constraint identity_only_row_check CHECK (only_row)
  constraint identity_pkey PRIMARY KEY (only_row)
  index UNIQUE INDEX identity_pkey ON posthaste.identity USING btree (only_row)
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
type live
  a bigint
  b bigint
  c bigint
  d bigint
  e bigint
  f bigint
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
table migrations
  version integer not null
  name text not null
  breaking boolean not null
  applied_at timestamp with time zone not null default clock_timestamp()
  constraint migrations_pkey PRIMARY KEY (version)
  constraint migrations_version_check CHECK ((version > 0))
  index UNIQUE INDEX migrations_pkey ON posthaste.migrations USING btree (version)
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
  constraint outcomes_pkey PRIMARY KEY (slot, claim, place)
  index INDEX outcomes_message ON ONLY posthaste.outcomes USING btree (message_id)
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
  constraint outcomes_N_pkey PRIMARY KEY (slot, claim, place) -- 16
  index INDEX outcomes_N_message_id_idx ON posthaste.outcomes_N USING btree (message_id) -- 16
  index INDEX outcomes_N_xid_idx ON posthaste.outcomes_N USING btree (xid) -- 16
  index UNIQUE INDEX outcomes_N_pkey ON posthaste.outcomes_N USING btree (slot, claim, place) -- 16
sequence positions bigint start 1 increment 1 cache 1
table queue_settings
  id integer not null generated always as identity
  name text not null
  max_attempts integer not null default 20
  backoff_base interval not null default '00:00:01'::interval
  backoff_max interval not null default '01:00:00'::interval
  timeout interval not null default '00:00:30'::interval
  max_payload integer not null default 1048576
  lanes smallint not null default 1
  ordered boolean not null default false
  mode text not null default 'at_least_once'::text
  retention interval
  paused_at timestamp with time zone
  created_at timestamp with time zone not null default clock_timestamp()
  dropped_at timestamp with time zone
  constraint queue_settings_backoff_base_check CHECK ((backoff_base >= '00:00:00'::interval))
  constraint queue_settings_backoff_max_check CHECK ((backoff_max >= '00:00:00'::interval))
  constraint queue_settings_lanes_check CHECK (((lanes >= 1) AND (lanes <= 64)))
  constraint queue_settings_max_attempts_check CHECK (((max_attempts >= 1) AND (max_attempts <= 1000)))
  constraint queue_settings_max_payload_check CHECK (((max_payload >= 1) AND (max_payload <= 33554432)))
  constraint queue_settings_mode_check CHECK ((mode = ANY (ARRAY['at_least_once'::text, 'at_most_once'::text])))
  constraint queue_settings_name_check CHECK ((name ~ '^[a-z0-9_.-]{1,63}$'::text))
  constraint queue_settings_pkey PRIMARY KEY (id)
  constraint queue_settings_timeout_check CHECK ((timeout > '00:00:00'::interval))
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
  paused_at timestamp with time zone
  created_at timestamp with time zone
  counted_at timestamp with time zone
table registrations with (fillfactor=50)
  id bigint not null generated always as identity
  name text not null
  version text not null
  lease interval not null
  started_at timestamp with time zone not null default clock_timestamp()
  heartbeat_at timestamp with time zone not null default clock_timestamp()
  lost_at timestamp with time zone
  ended_at timestamp with time zone
  cleared boolean not null default false
  oldest_open bigint not null default 0
  looked integer not null default 0
  constraint registrations_pkey PRIMARY KEY (id)
  index UNIQUE INDEX registrations_pkey ON posthaste.registrations USING btree (id)
sequence registrations_id_seq bigint start 1 increment 1 cache 1
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
  constraint since_crash_only_row_check CHECK (only_row)
  constraint since_crash_pkey PRIMARY KEY (only_row)
  index UNIQUE INDEX since_crash_pkey ON posthaste.since_crash USING btree (only_row)
table slots with (fillfactor=50)
  slot smallint not null
  epoch bigint not null
  live boolean not null
  left_before xid8
  marked_by xid8
  opened_at timestamp with time zone not null default clock_timestamp()
  constraint slots_pkey PRIMARY KEY (slot)
  constraint slots_slot_check CHECK (((slot >= 0) AND (slot <= 15)))
  index UNIQUE INDEX slots_pkey ON posthaste.slots USING btree (slot)
table stragglers
  worker bigint not null
  claim bigint not null
  constraint stragglers_pkey PRIMARY KEY (worker, claim)
  index UNIQUE INDEX stragglers_pkey ON posthaste.stragglers USING btree (worker, claim)
table subscriptions
  queue_id integer not null
  number smallint not null
  name text not null
  since pg_snapshot not null
  filter jsonb
  created_at timestamp with time zone not null default clock_timestamp()
  dropped_at timestamp with time zone
  constraint subscriptions_name_check CHECK ((name ~ '^[a-z0-9_.-]{1,63}$'::text))
  constraint subscriptions_number_check CHECK (((number >= 0) AND (number <= 1023)))
  constraint subscriptions_pkey PRIMARY KEY (queue_id, number)
  constraint subscriptions_queue_id_fkey FOREIGN KEY (queue_id) REFERENCES queue_settings(id)
  index UNIQUE INDEX subscriptions_name ON posthaste.subscriptions USING btree (queue_id, name) WHERE (dropped_at IS NULL)
  index UNIQUE INDEX subscriptions_pkey ON posthaste.subscriptions USING btree (queue_id, number)
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
function ack(delivery_ids bigint[], options jsonb DEFAULT '{}'::jsonb) returns TABLE(delivery_id bigint, settled boolean) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function arm(p_queue text, p_dozing boolean DEFAULT false, OUT queue_id integer, OUT armed text) returns record language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function bell_key(queue_id integer) returns bigint language sql immutable parallel safe cost 100
function bits_of(p_places integer[]) returns bit varying language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function carry_slot(p_slot integer) returns integer language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, enable_memoize=off, jit=off
function check_identity() returns void language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function check_ids(p_ids bigint[]) returns bigint[] language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function check_options(p_options jsonb, p_known text[], p_planned text[]) returns void language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function check_singles(p_deliveries bigint[]) returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off
function claim(p_worker bigint, p_number bigint, p_queue text, p_subscription text, p_max integer, p_single boolean DEFAULT false, p_idle boolean DEFAULT false, p_due boolean DEFAULT true, p_again boolean DEFAULT true, p_rows integer DEFAULT 0) returns TABLE(handed integer, wants_idle boolean, next_due double precision, timeout double precision, delivery_id bigint, message_id bigint, attempt smallint, key text, kind text, headers jsonb, payload bytea, content_type text, reference text, created_at timestamp with time zone, due_at timestamp with time zone, story jsonb, alone boolean) language plpgsql volatile security definer cost 100 rows 100 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function claim_lane(p_queue integer, p_subscription integer, p_lane integer, p_max integer, p_holder bigint, p_number bigint, p_until timestamp with time zone, p_single boolean, p_alone boolean, p_due boolean, p_wait boolean, OUT handed integer, OUT made claims[], OUT live live, OUT wants_idle boolean, OUT next_due timestamp with time zone) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function claim_open(c claims) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off
function copy_begin(p_queue text, p_count integer, p_longest integer, p_wake boolean, OUT queue_id integer, OUT lanes integer, OUT positions bigint[]) returns record language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function count_up() returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function create_queue(name text, options jsonb DEFAULT '{}'::jsonb) returns void language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function cursor_of(p_reader bigint, l live) returns claims language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off
function dead_heads(p_ids bigint[]) returns SETOF head language sql stable cost 100 rows 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off
function dead_newest(p_queues integer[], p_before bigint, p_max integer) returns SETOF head language plpgsql stable cost 100 rows 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off
function deliveries_at(c claims, p_places integer[]) returns TABLE(place integer, pos bigint, message_id bigint, created_at timestamp with time zone, due_at timestamp with time zone, attempt smallint, failures smallint, losses smallint, losses_alone smallint, content_type text, key text, kind text, reference text, headers jsonb, terms text[], trace text, story jsonb, payload bytea, ord xid8) language plpgsql stable cost 100 rows 10 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function deliveries_of(c claims) returns TABLE(place integer, pos bigint, message_id bigint, created_at timestamp with time zone, due_at timestamp with time zone, attempt smallint, failures smallint, losses smallint, losses_alone smallint, content_type text, key text, kind text, reference text, headers jsonb, terms text[], trace text, story jsonb, payload bytea, ord xid8) language sql stable cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function discard(message_ids bigint[], by text DEFAULT CURRENT_USER) returns SETOF bigint language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off
function doze_key(queue_id integer) returns bigint language sql immutable parallel safe cost 100
function drop_queue(name text) returns void language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function due_idle(p_queue integer, p_lane integer, w claims, t timestamp with time zone, l live, OUT idle boolean, OUT next_due timestamp with time zone) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function due_slice(p_queue integer, p_subscription integer, p_lane integer, INOUT w claims, p_max integer, p_alone boolean, l live, OUT walked integer, OUT wants_idle boolean) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function extend(delivery_ids bigint[], lease interval, options jsonb DEFAULT '{}'::jsonb) returns TABLE(delivery_id bigint, settled boolean) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0, plan_cache_mode=force_generic_plan, enable_seqscan=off
function fail(delivery_id bigint, error text, options jsonb DEFAULT '{}'::jsonb) returns TABLE(settled boolean, outcome text, due_at timestamp with time zone) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function fetch(p_worker bigint, p_number bigint, p_claims claims[] DEFAULT NULL::claims[], p_live live DEFAULT NULL::live) returns TABLE(numbered_from bigint, alone boolean, pos bigint, message_id bigint, created_at timestamp with time zone, due_at timestamp with time zone, attempt smallint, failures smallint, losses smallint, losses_alone smallint, content_type text, key text, kind text, reference text, headers jsonb, terms text[], trace text, story jsonb, payload bytea, ord xid8) language plpgsql stable security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function few_heads(p_queue integer, p_lanes integer, p_slot bigint, p_before bigint, p_max integer, OUT many boolean, OUT heads head[]) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off
function find_claim(p_reader bigint, p_xid xid8, p_pos bigint, p_due timestamp with time zone, l live, OUT fate text, OUT c claims) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function find_delivery(p_queue integer, p_lane integer, p_xid xid8, p_pos bigint, p_due_at timestamp with time zone, p_for_subscription integer, p_subscription integer, OUT fate text, OUT claim bigint, OUT place integer) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off
function find_subscription(p_queue text, p_subscription text, OUT queue_id integer, OUT number integer, OUT lanes integer, OUT timeout double precision) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function finish(c claims, p_places integer[], p_outcomes text[], p_errors text[], p_waits double precision[], p_receipts jsonb[], p_durations real[]) returns TABLE(place integer, outcome text, due_at timestamp with time zone) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function first_snapshot() returns pg_snapshot language sql volatile cost 100 set search_path=pg_catalog, pg_temp
function forget_cancelled() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_hashjoin=off, enable_mergejoin=off
function fresh_slice(p_queue integer, p_lane integer, s0 pg_snapshot, s1 pg_snapshot, p_xid xid8, p_pos bigint, p_max integer, l live, OUT places integer, OUT first_xid xid8, OUT first_pos bigint, OUT last_xid xid8, OUT last_pos bigint) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, jit=off
function handed_out(p_queue integer, p_subscription integer, p_lanes integer) returns bigint language plpgsql stable security definer cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function head_of(e entries) returns head language sql immutable parallel safe cost 100
function holds_slot(c claims, p_slot integer) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function in_slots(slot bigint, a bigint, b bigint, c bigint, d bigint, e bigint, f bigint) returns boolean language sql immutable parallel safe cost 100
function insert_entries(p_queues text[], p_payloads bytea[], p_content_types text[], p_keys text[], p_kinds text[], p_headers jsonb[], p_references text[], p_terms jsonb[], p_delays double precision[], p_send_ats timestamp with time zone[], p_traces text[], p_wake boolean) returns bigint[] language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, jit=off
function jump() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function later_heads(p_ids bigint[]) returns SETOF head language plpgsql stable cost 100 rows 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_material=off, enable_hashjoin=off, enable_mergejoin=off, jit=off
function leases_ended(p_subscriber bigint) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function list_dead_letters(in_queue text DEFAULT NULL::text, ids bigint[] DEFAULT NULL::bigint[], before bigint DEFAULT NULL::bigint, max integer DEFAULT 100) returns TABLE(message_id bigint, queue text, subscription text, key text, kind text, headers jsonb, reference text, terms text[], content_type text, payload bytea, created_at timestamp with time zone, died_at timestamp with time zone, error text, attempts jsonb) language plpgsql stable security definer cost 100 rows 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function list_messages(in_queue text DEFAULT NULL::text, with_reference text DEFAULT NULL::text, with_term text DEFAULT NULL::text, in_state text DEFAULT NULL::text, before bigint DEFAULT NULL::bigint, max integer DEFAULT 100) returns TABLE(message_id bigint, queue text, subscription text, state text, due_at timestamp with time zone, key text, kind text, headers jsonb, reference text, terms text[], content_type text, created_at timestamp with time zone, attempts jsonb) language plpgsql stable security definer cost 100 rows 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function live_slots() returns live language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function lock_key(family integer, id bigint) returns bigint language sql immutable parallel safe cost 100
function lock_reader(p_reader bigint, p_wait boolean) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, lock_timeout=5s
function look(p_queue integer, p_subscription integer, p_lanes integer, OUT ready boolean, OUT next_due double precision) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function maintain() returns TABLE(task text, detail text) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0
function message(id bigint) returns TABLE(message_id bigint, queue text, subscription text, state text, due_at timestamp with time zone, key text, kind text, headers jsonb, reference text, terms text[], content_type text, payload bytea, created_at timestamp with time zone, attempts jsonb) language plpgsql stable security definer cost 100 rows 1 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function message_state(p_id bigint, p_subscription integer, OUT state text, OUT due_at timestamp with time zone, OUT attempts jsonb) returns record language plpgsql stable security definer cost 100000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function message_states(p_heads head[]) returns TABLE(h head, subscription smallint, subscription_name text, state text, due_at timestamp with time zone, attempts jsonb) language plpgsql stable cost 100 rows 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function move_mark(p_worker bigint) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, enable_memoize=off, jit=off
function named_heads(p_queues integer[], p_reference text, p_term text, p_before bigint, p_max integer) returns SETOF head language plpgsql stable cost 100 rows 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function newest_heads(p_queue integer, p_before bigint, p_max integer) returns SETOF head language plpgsql stable cost 100 rows 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, max_parallel_workers_per_gather=0
function oldest_waiting(p_queue integer, p_subscription integer, p_lanes integer) returns timestamp with time zone language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off
function open_claims(p_worker bigint) returns SETOF claims language plpgsql volatile cost 100 rows 10 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, enable_memoize=off, jit=off
function open_places(c claims) returns integer[] language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off
function option_boolean(p_options jsonb, p_name text, p_default boolean) returns boolean language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function option_int(p_options jsonb, p_name text, p_min bigint, p_max bigint) returns integer language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function option_interval(p_options jsonb, p_name text) returns interval language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function option_text(p_options jsonb, p_name text) returns text language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function places_of(p_claim bigint) returns TABLE(pos bigint, place integer) language plpgsql stable cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off
function plain_headers(headers jsonb) returns boolean language plpgsql immutable parallel safe cost 100 set search_path=pg_catalog, pg_temp
function put_claim(c claims, p_holder bigint, p_number bigint, p_until timestamp with time zone, p_single boolean) returns claims language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function reader_key(queue_id integer, subscription integer, lane integer, track integer) returns bigint language sql immutable parallel safe cost 100
function receive(queue text, max integer, lease interval, options jsonb DEFAULT '{}'::jsonb) returns TABLE(delivery_id bigint, message_id bigint, attempt integer, key text, kind text, headers jsonb, payload bytea, content_type text, created_at timestamp with time zone, due_at timestamp with time zone, reference text, story jsonb) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function reclaim(OUT slot integer, OUT reason text) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, lock_timeout=50ms
function reference_heads(p_queues integer[], p_reference text, p_term text, p_slot bigint, p_before bigint, p_max integer) returns SETOF head language plpgsql stable cost 100 rows 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_hashjoin=off, enable_mergejoin=off, jit=off
function release(delivery_ids bigint[], options jsonb DEFAULT '{}'::jsonb) returns TABLE(delivery_id bigint, settled boolean) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function replay(message_ids bigint[], by text DEFAULT CURRENT_USER) returns SETOF bigint language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off
function rescue() returns integer language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0
function rescue_claim(p_claim bigint) returns integer language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, lock_timeout=100ms
function rescue_leases(p_subscriber bigint) returns integer language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off
function rescue_workers() returns integer language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function ring(queue_id integer) returns void language sql volatile cost 100
function ring_seen(OUT last bigint, OUT readers bigint[]) returns record language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function rotate() returns text language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function send(queue text, payload jsonb, options jsonb DEFAULT '{}'::jsonb) returns bigint language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function send_bytes(queue text, payload bytea, options jsonb DEFAULT '{}'::jsonb) returns bigint language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function send_many(queue text, messages jsonb, options jsonb DEFAULT '{}'::jsonb) returns SETOF bigint language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function send_options(p_options jsonb, p_more text[], OUT content_type text, OUT key text, OUT kind text, OUT headers jsonb, OUT reference text, OUT terms jsonb, OUT delay double precision, OUT send_at timestamp with time zone, OUT trace text, OUT wake boolean) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function send_row(p_queue text, p_payload bytea, p_content_type text, p_key text, p_kind text, p_headers jsonb, p_reference text, p_terms jsonb, p_delay double precision, p_send_at timestamp with time zone, p_trace text, p_wake boolean) returns bigint language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, jit=off
function send_rows(p_queues text[], p_payloads bytea[], p_content_types text[], p_keys text[], p_kinds text[], p_headers jsonb[], p_references text[], p_terms jsonb[], p_delays double precision[], p_send_ats timestamp with time zone[], p_traces text[], p_wake boolean) returns bigint[] language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function settle(p_claims bigint[], p_done bit varying[], p_deliveries bigint[] DEFAULT '{}'::bigint[], p_outcomes text[] DEFAULT '{}'::text[], p_errors text[] DEFAULT '{}'::text[], p_waits double precision[] DEFAULT '{}'::double precision[], p_receipts text[] DEFAULT '{}'::text[], p_durations real[] DEFAULT '{}'::real[], p_strict boolean DEFAULT false) returns TABLE(delivery_id bigint, settled boolean, outcome text, due_at timestamp with time zone, refused text) language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off
function settle_claim(c claims, p_wanted bit varying, p_done bit varying, p_duration real) returns bit varying language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off
function settle_singles(p_deliveries bigint[], p_outcome text, p_receipts jsonb, p_error text, p_wait double precision, p_strict boolean) returns TABLE(delivery_id bigint, settled boolean, outcome text, due_at timestamp with time zone) language plpgsql volatile cost 100 rows 1000 set search_path=pg_catalog, pg_temp
function slot_blocker(p_slot integer) returns text language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function slot_entered(p_slot integer, p_last bigint DEFAULT NULL::bigint) returns text language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function slot_held(p_slot integer) returns text language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, enable_memoize=off, jit=off
function slot_start(p_last bigint, p_slot integer) returns bigint language sql immutable cost 100 set search_path=pg_catalog, pg_temp
function slot_unread(p_slot integer) returns text language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, enable_memoize=off, jit=off
function snapshot_now() returns pg_snapshot language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp
function story_add(p_story jsonb, p_attempt jsonb) returns jsonb language sql immutable cost 100 set search_path=pg_catalog, pg_temp
function summarize() returns void language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, lock_timeout=50ms
function truncate_slot(p_slot integer, p_last bigint, p_readers bigint[]) returns boolean language plpgsql volatile cost 100 set search_path=pg_catalog, pg_temp, lock_timeout=50ms
function warm_up() returns void language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0, jit=off
function window_ranges(s0 pg_snapshot, s1 pg_snapshot, OUT lo bigint[], OUT hi bigint[]) returns record language plpgsql stable cost 100 set search_path=pg_catalog, pg_temp
function without_places(c claims) returns claims language plpgsql immutable cost 100 set search_path=pg_catalog, pg_temp
function worker_heartbeat(p_worker bigint) returns void language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function worker_look(p_worker bigint, p_queues text[], p_subscriptions text[]) returns TABLE(ready boolean, next_due double precision, maintain boolean, rescue boolean) language plpgsql volatile security definer cost 100 rows 1000 set max_parallel_workers_per_gather=0, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, enable_hashjoin=off, enable_mergejoin=off, enable_material=off, enable_memoize=off, jit=off
function worker_overdue(w registrations) returns boolean language sql volatile cost 100 set search_path=pg_catalog, pg_temp
function worker_register(p_name text, p_version text, p_lease interval) returns bigint language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function worker_unregister(p_worker bigint) returns void language plpgsql volatile security definer cost 100 set search_path=pg_catalog, pg_temp
function worker_unsettled(p_worker bigint, p_upto bigint) returns SETOF bigint language plpgsql volatile security definer cost 100 rows 1000 set search_path=pg_catalog, pg_temp, max_parallel_workers_per_gather=0
grant EXECUTE on function "fetch"(bigint,bigint,claims[],live) to posthaste_admin
grant EXECUTE on function "fetch"(bigint,bigint,claims[],live) to posthaste_receiver
grant EXECUTE on function ack(bigint[],jsonb) to posthaste_admin
grant EXECUTE on function ack(bigint[],jsonb) to posthaste_receiver
grant EXECUTE on function arm(text,boolean) to posthaste_admin
grant EXECUTE on function arm(text,boolean) to posthaste_receiver
grant EXECUTE on function bell_key(integer) to posthaste_admin
grant EXECUTE on function bell_key(integer) to posthaste_receiver
grant EXECUTE on function bits_of(integer[]) to posthaste_admin
grant EXECUTE on function carry_slot(integer) to posthaste_admin
grant EXECUTE on function check_identity() to posthaste_admin
grant EXECUTE on function check_ids(bigint[]) to posthaste_admin
grant EXECUTE on function check_options(jsonb,text[],text[]) to posthaste_admin
grant EXECUTE on function check_singles(bigint[]) to posthaste_admin
grant EXECUTE on function claim(bigint,bigint,text,text,integer,boolean,boolean,boolean,boolean,integer) to posthaste_admin
grant EXECUTE on function claim(bigint,bigint,text,text,integer,boolean,boolean,boolean,boolean,integer) to posthaste_receiver
grant EXECUTE on function claim_lane(integer,integer,integer,integer,bigint,bigint,timestamp with time zone,boolean,boolean,boolean,boolean) to posthaste_admin
grant EXECUTE on function claim_open(claims) to posthaste_admin
grant EXECUTE on function copy_begin(text,integer,integer,boolean) to posthaste_admin
grant EXECUTE on function copy_begin(text,integer,integer,boolean) to posthaste_sender
grant EXECUTE on function count_up() to posthaste_admin
grant EXECUTE on function create_queue(text,jsonb) to posthaste_admin
grant EXECUTE on function cursor_of(bigint,live) to posthaste_admin
grant EXECUTE on function dead_heads(bigint[]) to posthaste_admin
grant EXECUTE on function dead_newest(integer[],bigint,integer) to posthaste_admin
grant EXECUTE on function deliveries_at(claims,integer[]) to posthaste_admin
grant EXECUTE on function deliveries_of(claims) to posthaste_admin
grant EXECUTE on function discard(bigint[],text) to posthaste_admin
grant EXECUTE on function doze_key(integer) to posthaste_admin
grant EXECUTE on function doze_key(integer) to posthaste_receiver
grant EXECUTE on function drop_queue(text) to posthaste_admin
grant EXECUTE on function due_idle(integer,integer,claims,timestamp with time zone,live) to posthaste_admin
grant EXECUTE on function due_slice(integer,integer,integer,claims,integer,boolean,live) to posthaste_admin
grant EXECUTE on function extend(bigint[],interval,jsonb) to posthaste_admin
grant EXECUTE on function extend(bigint[],interval,jsonb) to posthaste_receiver
grant EXECUTE on function fail(bigint,text,jsonb) to posthaste_admin
grant EXECUTE on function fail(bigint,text,jsonb) to posthaste_receiver
grant EXECUTE on function few_heads(integer,integer,bigint,bigint,integer) to posthaste_admin
grant EXECUTE on function find_claim(bigint,xid8,bigint,timestamp with time zone,live) to posthaste_admin
grant EXECUTE on function find_delivery(integer,integer,xid8,bigint,timestamp with time zone,integer,integer) to posthaste_admin
grant EXECUTE on function find_subscription(text,text) to posthaste_admin
grant EXECUTE on function finish(claims,integer[],text[],text[],double precision[],jsonb[],real[]) to posthaste_admin
grant EXECUTE on function first_snapshot() to posthaste_admin
grant EXECUTE on function forget_cancelled() to posthaste_admin
grant EXECUTE on function fresh_slice(integer,integer,pg_snapshot,pg_snapshot,xid8,bigint,integer,live) to posthaste_admin
grant EXECUTE on function handed_out(integer,integer,integer) to posthaste_admin
grant EXECUTE on function head_of(entries) to posthaste_admin
grant EXECUTE on function holds_slot(claims,integer) to posthaste_admin
grant EXECUTE on function in_slots(bigint,bigint,bigint,bigint,bigint,bigint,bigint) to posthaste_admin
grant EXECUTE on function insert_entries(text[],bytea[],text[],text[],text[],jsonb[],text[],jsonb[],double precision[],timestamp with time zone[],text[],boolean) to posthaste_admin
grant EXECUTE on function jump() to posthaste_admin
grant EXECUTE on function later_heads(bigint[]) to posthaste_admin
grant EXECUTE on function leases_ended(bigint) to posthaste_admin
grant EXECUTE on function list_dead_letters(text,bigint[],bigint,integer) to posthaste_admin
grant EXECUTE on function list_messages(text,text,text,text,bigint,integer) to posthaste_admin
grant EXECUTE on function live_slots() to posthaste_admin
grant EXECUTE on function lock_key(integer,bigint) to posthaste_admin
grant EXECUTE on function lock_key(integer,bigint) to posthaste_receiver
grant EXECUTE on function lock_reader(bigint,boolean) to posthaste_admin
grant EXECUTE on function look(integer,integer,integer) to posthaste_admin
grant EXECUTE on function maintain() to posthaste_admin
grant EXECUTE on function maintain() to posthaste_receiver
grant EXECUTE on function message(bigint) to posthaste_admin
grant EXECUTE on function message(bigint) to posthaste_receiver
grant EXECUTE on function message_state(bigint,integer) to posthaste_admin
grant EXECUTE on function message_states(head[]) to posthaste_admin
grant EXECUTE on function move_mark(bigint) to posthaste_admin
grant EXECUTE on function named_heads(integer[],text,text,bigint,integer) to posthaste_admin
grant EXECUTE on function newest_heads(integer,bigint,integer) to posthaste_admin
grant EXECUTE on function oldest_waiting(integer,integer,integer) to posthaste_admin
grant EXECUTE on function open_claims(bigint) to posthaste_admin
grant EXECUTE on function open_places(claims) to posthaste_admin
grant EXECUTE on function option_boolean(jsonb,text,boolean) to posthaste_admin
grant EXECUTE on function option_int(jsonb,text,bigint,bigint) to posthaste_admin
grant EXECUTE on function option_interval(jsonb,text) to posthaste_admin
grant EXECUTE on function option_text(jsonb,text) to posthaste_admin
grant EXECUTE on function places_of(bigint) to posthaste_admin
grant EXECUTE on function plain_headers(jsonb) to posthaste_admin
grant EXECUTE on function plain_headers(jsonb) to posthaste_sender
grant EXECUTE on function put_claim(claims,bigint,bigint,timestamp with time zone,boolean) to posthaste_admin
grant EXECUTE on function reader_key(integer,integer,integer,integer) to posthaste_admin
grant EXECUTE on function receive(text,integer,interval,jsonb) to posthaste_admin
grant EXECUTE on function receive(text,integer,interval,jsonb) to posthaste_receiver
grant EXECUTE on function reclaim() to posthaste_admin
grant EXECUTE on function reference_heads(integer[],text,text,bigint,bigint,integer) to posthaste_admin
grant EXECUTE on function release(bigint[],jsonb) to posthaste_admin
grant EXECUTE on function release(bigint[],jsonb) to posthaste_receiver
grant EXECUTE on function replay(bigint[],text) to posthaste_admin
grant EXECUTE on function rescue() to posthaste_admin
grant EXECUTE on function rescue() to posthaste_receiver
grant EXECUTE on function rescue_claim(bigint) to posthaste_admin
grant EXECUTE on function rescue_leases(bigint) to posthaste_admin
grant EXECUTE on function rescue_workers() to posthaste_admin
grant EXECUTE on function ring(integer) to posthaste_admin
grant EXECUTE on function ring_seen() to posthaste_admin
grant EXECUTE on function rotate() to posthaste_admin
grant EXECUTE on function send(text,jsonb,jsonb) to posthaste_admin
grant EXECUTE on function send(text,jsonb,jsonb) to posthaste_sender
grant EXECUTE on function send_bytes(text,bytea,jsonb) to posthaste_admin
grant EXECUTE on function send_bytes(text,bytea,jsonb) to posthaste_sender
grant EXECUTE on function send_many(text,jsonb,jsonb) to posthaste_admin
grant EXECUTE on function send_many(text,jsonb,jsonb) to posthaste_sender
grant EXECUTE on function send_options(jsonb,text[]) to posthaste_admin
grant EXECUTE on function send_row(text,bytea,text,text,text,jsonb,text,jsonb,double precision,timestamp with time zone,text,boolean) to posthaste_admin
grant EXECUTE on function send_row(text,bytea,text,text,text,jsonb,text,jsonb,double precision,timestamp with time zone,text,boolean) to posthaste_sender
grant EXECUTE on function send_rows(text[],bytea[],text[],text[],text[],jsonb[],text[],jsonb[],double precision[],timestamp with time zone[],text[],boolean) to posthaste_admin
grant EXECUTE on function send_rows(text[],bytea[],text[],text[],text[],jsonb[],text[],jsonb[],double precision[],timestamp with time zone[],text[],boolean) to posthaste_sender
grant EXECUTE on function settle(bigint[],bit varying[],bigint[],text[],text[],double precision[],text[],real[],boolean) to posthaste_admin
grant EXECUTE on function settle(bigint[],bit varying[],bigint[],text[],text[],double precision[],text[],real[],boolean) to posthaste_receiver
grant EXECUTE on function settle_claim(claims,bit varying,bit varying,real) to posthaste_admin
grant EXECUTE on function settle_singles(bigint[],text,jsonb,text,double precision,boolean) to posthaste_admin
grant EXECUTE on function slot_blocker(integer) to posthaste_admin
grant EXECUTE on function slot_entered(integer,bigint) to posthaste_admin
grant EXECUTE on function slot_held(integer) to posthaste_admin
grant EXECUTE on function slot_start(bigint,integer) to posthaste_admin
grant EXECUTE on function slot_unread(integer) to posthaste_admin
grant EXECUTE on function snapshot_now() to posthaste_admin
grant EXECUTE on function story_add(jsonb,jsonb) to posthaste_admin
grant EXECUTE on function summarize() to posthaste_admin
grant EXECUTE on function truncate_slot(integer,bigint,bigint[]) to posthaste_admin
grant EXECUTE on function warm_up() to posthaste_admin
grant EXECUTE on function warm_up() to posthaste_receiver
grant EXECUTE on function window_ranges(pg_snapshot,pg_snapshot) to posthaste_admin
grant EXECUTE on function without_places(claims) to posthaste_admin
grant EXECUTE on function worker_heartbeat(bigint) to posthaste_admin
grant EXECUTE on function worker_heartbeat(bigint) to posthaste_receiver
grant EXECUTE on function worker_look(bigint,text[],text[]) to posthaste_admin
grant EXECUTE on function worker_look(bigint,text[],text[]) to posthaste_receiver
grant EXECUTE on function worker_overdue(registrations) to posthaste_admin
grant EXECUTE on function worker_register(text,text,interval) to posthaste_admin
grant EXECUTE on function worker_register(text,text,interval) to posthaste_receiver
grant EXECUTE on function worker_unregister(bigint) to posthaste_admin
grant EXECUTE on function worker_unregister(bigint) to posthaste_receiver
grant EXECUTE on function worker_unsettled(bigint,bigint) to posthaste_admin
grant EXECUTE on function worker_unsettled(bigint,bigint) to posthaste_receiver
grant USAGE on schema posthaste to posthaste_admin
grant USAGE on schema posthaste to posthaste_receiver
grant USAGE on schema posthaste to posthaste_sender
grant SELECT on table actions to posthaste_admin
grant SELECT on table applied to posthaste_admin
grant SELECT on table cancelled to posthaste_admin
grant SELECT on table carried to posthaste_admin
grant SELECT on table claims to posthaste_admin
grant SELECT on table claims_N to posthaste_admin -- 16
grant SELECT on table counted to posthaste_admin
grant SELECT on table counters to posthaste_admin
grant SELECT on table dead_letter_entries to posthaste_admin
grant SELECT on table dead_letters to posthaste_admin
grant SELECT on table entries to posthaste_admin
grant SELECT on table entries_N to posthaste_admin -- 16
grant SELECT on table held_claims to posthaste_admin
grant SELECT on table identity to posthaste_admin
grant SELECT on table lease_cursors to posthaste_admin
grant SELECT on table leases to posthaste_admin
grant SELECT on table leases_N to posthaste_admin -- 16
grant SELECT on table messages to posthaste_admin
grant SELECT on table migrations to posthaste_admin
grant SELECT on table migrations to posthaste_receiver
grant SELECT on table migrations to posthaste_sender
grant SELECT on table outcomes to posthaste_admin
grant SELECT on table outcomes_N to posthaste_admin -- 16
grant SELECT on table queue_settings to posthaste_admin
grant SELECT on table queues to posthaste_admin
grant SELECT on table registrations to posthaste_admin
grant SELECT on table settings to posthaste_admin
grant SELECT on table settlements to posthaste_admin
grant SELECT on table settlements_N to posthaste_admin -- 16
grant SELECT on table since_crash to posthaste_admin
grant SELECT on table slots to posthaste_admin
grant SELECT on table stragglers to posthaste_admin
grant SELECT on table subscriptions to posthaste_admin
grant SELECT on table workers to posthaste_admin

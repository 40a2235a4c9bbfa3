-- posthaste.rebase: makes the ledger of a copy usable: of a database that was restored from a
-- dump, cloned, or moved by logical replication, whose transaction ids differ from those in the
-- cursors. Call it only if the original does not hand out messages any more, or if both may.
-- Arguments: same_ids: this is the result of pg_upgrade, or another physical copy: ids are the
-- same, and only the new identity is recorded; by: the actor to record.
-- Returns: rebased, false if the ledger belongs here already and nothing was done; waiting: the
-- number of deliveries that were never handed out; again: the number of those that were handed
-- out and not settled, which are redelivered with attempt + 1.
-- It is one transaction: messages that the restored cursors had not handed out, or that their
-- claims show unsettled, are appended again, for each subscription, in their old order; new
-- cursors are written, and the rest of the ring is emptied. Settled messages stay settled, and
-- can be looked up only in the history. Messages sent since the copy was made are kept, too. All
-- workers count as lost. Senders wait meanwhile. Notices report the progress.
-- Errors: PH400 unless the isolation level is READ COMMITTED; PH409 with same_ids if the ids
-- differ. Locks: the maintenance key; ACCESS EXCLUSIVE on the ring.
-- Writes: every table that contains transaction ids or claims.
create or replace function posthaste.rebase(same_ids boolean default false, by text default session_user)
returns table (rebased boolean, waiting bigint, again bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_same boolean;
  v_start bigint;
  v_timeout constant text := current_setting('lock_timeout');
begin
  perform posthaste.read_committed('rebase');
  perform pg_advisory_xact_lock(posthaste.lock_key(6, 0));
  rebased := exists (select from posthaste.not_here() n where n.message is not null);
  waiting := 0;
  again := 0;
  if not rebased then
    return next;
    return;
  end if;
  v_same := exists (select from posthaste.identity i where i.xmin = i.written_by);
  if rebase.same_ids then
    if not v_same then
      raise exception using errcode = 'PH409', column = 'same_ids',
        message = 'this database was restored from a dump or replicated: its messages were sent with other transaction ids',
        hint = 'leave out same_ids (--same-ids): it is for databases upgraded by pg_upgrade';
    end if;
  else
    raise notice 'waiting for transactions that use the ring';
    -- All at once or none: senders lock these tables in any order. Waiting for one of them
    -- could be part of a deadlock, so this gives up before the deadlock check runs.
    perform set_config('lock_timeout', '300ms', true);
    loop
      begin
        lock table posthaste.leases, posthaste.claims, posthaste.settlements, posthaste.words, posthaste.entries_plain, posthaste.entries_other, posthaste.outcomes, posthaste.notes in access exclusive mode;
        exit;
      exception when lock_not_available then
        perform pg_sleep(0.05);
      end;
    end loop;
    perform set_config('lock_timeout', v_timeout, true);
    if not v_same then
      perform posthaste.rebase_sent_here();
    end if;
    perform posthaste.rebase_collect();
    perform posthaste.rebase_counters();
    v_start := posthaste.rebase_append();
    perform posthaste.rebase_keys();
    perform posthaste.rebase_cursors();
    perform posthaste.rebase_ring(v_start);
    select count(*) filter (where not w.again), count(*) filter (where w.again) into waiting, again
      from pg_temp.rebase_work w cross join lateral unnest(w.needs);
    waiting := waiting + (select count(*) from posthaste.parked) - (select count(*) from pg_temp.rebase_work w cross join lateral unnest(w.needs) where w.parks);
    drop table pg_temp.rebase_work, pg_temp.rebase_readers;
  end if;
  perform posthaste.adopt();
  perform posthaste.admit();
  insert into posthaste.action_records (by, action, details)
  values (coalesce(rebase.by, session_user), 'rebase', jsonb_build_object('same_ids', rebase.same_ids, 'waiting', waiting, 'again', again));
  return next;
end $$;

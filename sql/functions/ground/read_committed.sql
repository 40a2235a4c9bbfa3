-- posthaste.read_committed: raises an error in a transaction whose reads after waiting for a
-- lock would be older than the lock.
-- Arguments: the name of the operation. Errors: PH400. Locks: none. Tables: none.
create or replace function posthaste.read_committed(p_what text)
returns void language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using errcode = 'PH400',
      message = format('%s needs READ COMMITTED, and this transaction is %s', p_what, upper(current_setting('transaction_isolation'))),
      hint = 'begin another transaction: begin isolation level read committed';
  end if;
end $$;

-- compatible
-- Up to which position a slot was emptied when it was last truncated. What was
-- withdrawn from it may be forgotten up to there and no further: in a ledger that
-- was not maintained for a whole revolution a slot has entries of several.
alter table posthaste.slots add cleared_to bigint not null default -1;

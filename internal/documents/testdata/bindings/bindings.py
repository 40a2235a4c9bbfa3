# Calls with each value that the table in docs/guides/sql-from-your-language.md names.
import asyncio
import datetime
import json
import os

import asyncpg
import psycopg
from psycopg.types.json import Json, Jsonb
from sqlalchemy import bindparam, create_engine, func, select, text
from sqlalchemy.dialects.postgresql import JSONB

url = os.environ["DATABASE_URL"]
later = datetime.datetime(2999, 1, 1, tzinfo=datetime.timezone.utc)
options = {"delay": "1 hour", "key": "k"}


def by_psycopg():
    with psycopg.connect(url, autocommit=True) as db:
        for payload in ('{"a": 1}', Jsonb({"a": 1}), Json({"a": 1})):
            for given in (json.dumps(options), Jsonb(options), Json(options)):
                id = db.execute("select posthaste.send('orders', %s, %s)", (payload, given)).fetchone()[0]
        for ids in (5, [5, 6]):
            db.execute("select posthaste.ack(%s)", (ids,))
        db.execute("select posthaste.reschedule(%s, %s)", (id, later))
        db.execute("select posthaste.receive(%s, %s, %s)", ("orders", 10, datetime.timedelta(minutes=1)))


def by_sqlalchemy():
    engine = create_engine(url.replace("postgres://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with engine.connect() as db:
        call = text("select posthaste.send('orders', :payload, :options)")
        id = db.execute(call, {"payload": '{"a": 1}', "options": json.dumps(options)}).scalar()
        db.execute(call.bindparams(bindparam("options", type_=JSONB)), {"payload": '{"a": 1}', "options": options})
        db.execute(select(func.posthaste.send("orders", '{"a": 1}', json.dumps(options))))
        for ids in (5, [5, 6]):
            db.execute(text("select posthaste.ack(:ids)"), {"ids": ids})
            db.execute(select(func.posthaste.ack(ids)))
        db.execute(text("select posthaste.reschedule(:id, :at)"), {"id": id, "at": later})
        db.execute(select(func.posthaste.receive("orders", 10, datetime.timedelta(minutes=1))))


async def by_asyncpg():
    db = await asyncpg.connect(url)
    id = await db.fetchval("select posthaste.send('orders', $1, $2)", '{"a": 1}', json.dumps(options))
    await db.fetch("select posthaste.ack($1::bigint)", 5)
    await db.fetch("select posthaste.ack($1::bigint[])", [5, 6])
    await db.fetch("select posthaste.ack($1)", "5")
    await db.fetch("select posthaste.reschedule($1, $2::timestamptz)", id, later)
    await db.fetch("select posthaste.receive($1, $2, $3)", "orders", 10, datetime.timedelta(minutes=1))
    await db.close()


by_psycopg()
by_sqlalchemy()
asyncio.run(by_asyncpg())
print("all calls work")

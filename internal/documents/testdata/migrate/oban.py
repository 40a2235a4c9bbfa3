# Creates the table of Oban for Python and leaves jobs, by the statements of its package. The
# package itself needs Python 3.12.
import datetime
import glob
import os
import zipfile

import psycopg
from psycopg.types.json import Jsonb

package = zipfile.ZipFile(glob.glob("oban-*.whl")[0])


def run(name, **values):
    return db.execute(package.read(f"oban/queries/{name}.sql").decode(), values or None)


def insert(worker, order, **more):
    run("insert_job", **{"worker": worker, "args": Jsonb({"order": order}), "inserted_at": None, "max_attempts": 20, "meta": Jsonb({}), "priority": 0, "queue": "default",
                         "scheduled_at": None, "state": "available", "tags": [], **more})


with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as db:
    run("install")
    insert("shop.Ship", 1)
    db.row_factory = psycopg.rows.dict_row
    job = run("fetch_jobs", queue="default", demand=1, attempted_by=["node"]).fetchone()
    run("ack_job", id=job["id"], attempted_at=job["attempted_at"], state="retryable", schedule_in=3600, attempt_change=None, meta=None,
        error=Jsonb({"attempt": 1, "at": "2026-01-01T00:00:00", "error": "the carrier is busy"}))
    insert("shop.Invoice", 2, priority=9)
    insert("shop.Review", 3, scheduled_at=datetime.datetime(2999, 1, 1), tags=["x"], meta=Jsonb({"tenant": "ada"}))
    insert("shop.Ship", 4, queue="other")
    run("fetch_jobs", queue="other", demand=1, attempted_by=["node"])  # a worker holds it

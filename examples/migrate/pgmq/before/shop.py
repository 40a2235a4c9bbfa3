import os
import time

import psycopg
from psycopg.types.json import Jsonb

# With autocommit each statement is a transaction of its own, so a read is committed before the work.
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as db:
    db.execute("select pgmq.create('shop')")

    # The order and its messages commit together.
    with db.transaction():
        db.execute("insert into orders (id) values (%s)", (7,))
        db.execute("select pgmq.send('shop', %s)", (Jsonb({"task": "ship", "order": 7}),))
        db.execute("select pgmq.send('shop', %s, %s)", (Jsonb({"task": "review", "order": 7}), 3600))

    shipped = False
    while not shipped:  # a service would go on
        for msg_id, read_ct, message in db.execute("select msg_id, read_ct, message from pgmq.read('shop', 1, 10)").fetchall():
            order = message["order"]
            if message["task"] == "review":
                print("asked for a review of order", order)
                db.execute("select pgmq.delete('shop', %s)", (msg_id,))
            elif read_ct == 1:
                print(f"order {order}: the carrier is busy")  # it becomes visible again
            else:
                # The shipment and the deletion commit together.
                with db.transaction():
                    db.execute("update orders set shipped = true where id = %s", (order,))
                    db.execute("select pgmq.delete('shop', %s)", (msg_id,))
                print("shipped order", order)
                shipped = True
        time.sleep(0.3)

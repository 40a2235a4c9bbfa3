import asyncio
import json
import os

import asyncpg


async def main():
    # Outside of db.transaction() each statement is a transaction of its own.
    db = await asyncpg.connect(os.environ["DATABASE_URL"])

    # The order and its message commit together.
    async with db.transaction():
        await db.execute("insert into orders (id, item) values ($1, $2)", 7, "lamp")
        await db.execute("select posthaste.send('orders', $1, $2)", json.dumps({"order": 7}), json.dumps({"reference": "order-7"}))

    while messages := await db.fetch("select delivery_id, payload_json from posthaste.receive('orders', 10, '1 minute')"):
        for delivery_id, payload in messages:
            order = json.loads(payload)["order"]
            try:
                # The shipment and the acknowledgment commit together. The cast makes the id a number.
                async with db.transaction():
                    await db.execute("insert into shipments (order_id) values ($1)", order)
                    await db.execute("""select posthaste.ack($1::bigint, '{"strict": true}')""", delivery_id)
                print("shipped order", order)
            except Exception as error:
                await db.execute("select posthaste.fail($1, $2)", delivery_id, repr(error))

    await db.close()


asyncio.run(main())

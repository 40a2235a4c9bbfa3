import pg from "pg";
import { PgBoss } from "pg-boss";

const db = new pg.Client({ connectionString: process.env.DATABASE_URL });
await db.connect();
const boss = new PgBoss(process.env.DATABASE_URL);
boss.on("error", console.error);
await boss.start();
await boss.createQueue("ship", { retryLimit: 4, retryDelay: 1 });
await boss.createQueue("review");

// The order and its jobs commit together.
const inTransaction = { db: { executeSql: (text, values) => db.query(text, values) } };
await db.query("begin");
await db.query("insert into orders (id) values ($1)", [7]);
await boss.send("ship", { order: 7 }, inTransaction);
await boss.send("review", { order: 7 }, { startAfter: 3600, ...inTransaction });
await db.query("commit");

let shipped;
const done = new Promise((resolve) => (shipped = resolve));

await boss.work("ship", { includeMetadata: true, pollingIntervalSeconds: 0.5 }, async ([job]) => {
  if (job.retryCount === 0) {
    console.log(`order ${job.data.order}: the carrier is busy`);
    throw new Error("the carrier is busy");
  }
  await db.query("update orders set shipped = true where id = $1", [job.data.order]);
  console.log(`shipped order ${job.data.order}`);
  shipped();
});

await boss.work("review", async ([job]) => {
  console.log(`asked for a review of order ${job.data.order}`);
});

// A service would go on. This program ends with the order.
await done;
await boss.stop();
await db.end();

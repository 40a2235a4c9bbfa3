// Calls with each value that the table in docs/guides/sql-from-your-language.md names.
import { PrismaPg } from "@prisma/adapter-pg";
import { PrismaClient } from "@prisma/client";
import { sql as template } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import pg from "pg";
import postgres from "postgres";

const url = process.env.DATABASE_URL;
const later = new Date("2999-01-01T00:00:00Z");
const options = { delay: "1 hour", key: "k" };

async function byNodePg() {
  const db = new pg.Client({ connectionString: url });
  await db.connect();
  let id;
  for (const payload of [{ a: 1 }, '{"a": 1}']) {
    for (const given of [options, JSON.stringify(options)]) {
      id = (await db.query("select posthaste.send('orders', $1, $2) as id", [payload, given])).rows[0].id;
    }
  }
  for (const ids of [5, "5", [5, 6], ["5", "6"]]) await db.query("select posthaste.ack($1)", [ids]);
  await db.query("select posthaste.reschedule($1, $2)", [id, later]);
  await db.query("select posthaste.receive($1, $2, $3)", ["orders", 10, "1 minute"]);
  await db.end();
}

async function byPostgresJs() {
  const sql = postgres(url);
  let id;
  for (const payload of [sql.json({ a: 1 }), '{"a": 1}']) {
    for (const given of [sql.json(options), JSON.stringify(options)]) {
      id = (await sql`select posthaste.send('orders', ${payload}, ${given}) as id`)[0].id;
    }
  }
  for (const ids of [5, "5", [5, 6], ["5", "6"]]) await sql`select posthaste.ack(${ids})`;
  await sql`select posthaste.reschedule(${id}, ${later})`;
  await sql`select posthaste.receive(${"orders"}, ${10}, ${"1 minute"})`;
  await sql.end();
}

async function byDrizzle() {
  const db = drizzle(url);
  let id;
  for (const payload of [{ a: 1 }, '{"a": 1}']) {
    id = (await db.execute(template`select posthaste.send('orders', ${payload}, ${options}) as id`)).rows[0].id;
  }
  for (const ids of [5, "5", template.param([5, 6])]) await db.execute(template`select posthaste.ack(${ids})`);
  await db.execute(template`select posthaste.reschedule(${id}, ${later})`);
  await db.execute(template`select posthaste.receive(${"orders"}, ${10}, ${"1 minute"})`);
  await db.$client.end();
}

async function byPrisma() {
  const db = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });
  let id;
  for (const payload of [{ a: 1 }, '{"a": 1}']) {
    for (const given of [options, JSON.stringify(options)]) {
      id = (await db.$queryRaw`select posthaste.send('orders', ${payload}, ${given}) as id`)[0].id;
    }
  }
  for (const ids of [5n, 5, "5", [5n, 6n], [5, 6]]) await db.$queryRaw`select * from posthaste.ack(${ids})`;
  await db.$queryRaw`select * from posthaste.reschedule(${id}, ${later.toISOString()})`;
  await db.$queryRaw`select * from posthaste.receive(${"orders"}, ${10}, ${"1 minute"})`;
  for (const call of [
    db.$queryRaw`select posthaste.create_queue(${"made"}, ${{ lanes: 2 }})`,
    db.$queryRaw`select posthaste.drop_queue(${"made"})`,
  ]) {
    await call; // void, which it cannot read, is no function's result
  }
  await db.$disconnect();
}

for (const by of [byNodePg, byPostgresJs, byDrizzle, byPrisma]) {
  try {
    await by();
  } catch (error) {
    console.error(by.name, error);
    process.exitCode = 1;
  }
}
console.log("all calls work");

import { run } from "graphile-worker";
import pg from "pg";

const db = new pg.Client({ connectionString: process.env.DATABASE_URL });
await db.connect();

let shipped;
const done = new Promise((resolve) => (shipped = resolve));

const runner = await run({
  connectionString: process.env.DATABASE_URL,
  noHandleSignals: true,
  taskList: {
    async ship({ order }, helpers) {
      if (helpers.job.attempts === 1) {
        console.log(`order ${order}: the carrier is busy`);
        throw new Error("the carrier is busy");
      }
      await helpers.query("update orders set shipped = true where id = $1", [order]);
      console.log(`shipped order ${order}`);
      shipped();
    },
    async review({ order }) {
      console.log(`asked for a review of order ${order}`);
    },
  },
});

// The order and its jobs commit together. The jobs of a customer run one after the other.
await db.query("begin");
await db.query("insert into orders (id) values ($1)", [7]);
await db.query("select graphile_worker.add_job('ship', $1, queue_name => 'ada', max_attempts => 5)", [{ order: 7 }]);
await db.query("select graphile_worker.add_job('review', $1, run_at => now() + interval '1 hour', job_key => 'review-7')", [{ order: 7 }]);
await db.query("commit");

// A service would go on. This program ends with the order.
await done;
await runner.stop();
await db.end();

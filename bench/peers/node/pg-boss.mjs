// pg-boss by insert, send and work.

import { PgBoss } from 'pg-boss';
import { serve } from './child.mjs';

async function open({ url, row }, options) {
  const boss = new PgBoss({ connectionString: url, useListenNotify: row === 'best', ...options });
  boss.on('error', (error) => process.stderr.write(`pg-boss: ${error}\n`));
  await boss.start();
  return boss;
}

function settings({ scenario, row }) {
  const batches = { batchSize: 1000, burstWhenBatchFull: true, localConcurrency: 2 };
  switch (scenario) {
    case 'flow':
      return { ...batches, pollingIntervalSeconds: 0.5 };
    case 'latency':
    case 'idle':
      return row === 'best' ? { batchSize: 100, burstWhenBatchFull: true } : {};
  }
  return batches;
}

await serve({
  async install(order) {
    const boss = await open(order);
    await boss.createQueue(order.queue, { notify: order.row === 'best' });
    await boss.stop({ graceful: false });
  },

  async sender(order) {
    // The worker does the upkeep.
    const boss = await open(order, { max: order.senders, supervise: false, schedule: false });
    return {
      batch: (messages) => boss.insert(order.queue, messages.map((data) => ({ data }))),
      one: (data) => boss.send(order.queue, data),
      within: (client, data) =>
        boss.send(order.queue, data, { db: { executeSql: (text, values) => client.query(text, values) } }),
    };
  },

  async work(order, tally) {
    const boss = await open(order);
    await boss.work(order.queue, settings(order), async (jobs) => jobs.forEach(({ data }) => tally.handled(data)));
  },
});

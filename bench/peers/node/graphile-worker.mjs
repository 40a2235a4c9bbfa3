// graphile-worker by makeWorkerUtils and run, and by its SQL function within transactions.

import { Logger, makeWorkerUtils, run, runMigrations } from 'graphile-worker';
import { openPool, serve } from './child.mjs';

// Warnings and errors only, on stderr: stdout is the parent's.
const logger = new Logger(() => (level, message) => {
  if (level === 'error' || level === 'warning') {
    process.stderr.write(`graphile-worker: ${message}\n`);
  }
});

function settings({ scenario, row }) {
  switch (scenario) {
    case 'flow':
      return {
        concurrentJobs: 24,
        maxPoolSize: 26,
        localQueue: { size: 500, refetchDelay: { durationMs: 10 } },
        completeJobBatchDelay: 0,
      };
    case 'latency':
    case 'idle':
      return row === 'best' ? { concurrentJobs: 10, maxPoolSize: 12 } : {};
  }
  return { concurrentJobs: 10, maxPoolSize: 12 };
}

await serve({
  async install({ url }) {
    await runMigrations({ connectionString: url, logger });
  },

  async sender({ url, senders, queue }) {
    const pgPool = openPool(url, senders);
    const utils = await makeWorkerUtils({ pgPool, logger });
    return {
      batch: (messages) => utils.addJobs(messages.map((payload) => ({ identifier: queue, payload }))),
      one: (payload) => utils.addJob(queue, payload),
      within: (client, payload) =>
        client.query({
          name: 'add_job',
          text: 'select graphile_worker.add_job($1, $2::json)',
          values: [queue, JSON.stringify(payload)],
        }),
    };
  },

  async work(order, tally) {
    await run({
      preset: { worker: { connectionString: order.url, logger, ...settings(order) } },
      taskList: { [order.queue]: async (payload) => tally.handled(payload) },
    });
  },
});

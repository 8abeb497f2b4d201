// Runs the audits of GraphQL over HTTP against a server:
//
//   node run.mjs http://127.0.0.1:8080/graphql
//
// Prints one line for each audit, then "N passed, N failed". The exit status is
// 1 if any failed, and 2 if they could not be run.
import { serverAudits } from 'graphql-http';

const [url] = process.argv.slice(2);
if (!url) {
  console.error('usage: node run.mjs URL');
  process.exit(2);
}

let passed = 0;
let failed = 0;
for (const audit of serverAudits({ url })) {
  const result = await audit.fn().catch((error) => {
    console.error(`${audit.id} could not be run: ${error}`);
    process.exit(2);
  });
  if (result.status === 'ok') {
    passed++;
    console.log(`ok    ${audit.id} ${audit.name}`);
  } else {
    failed++;
    console.log(`FAIL  ${audit.id} ${audit.name}: ${result.reason}`);
  }
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);

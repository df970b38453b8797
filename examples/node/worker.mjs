// The same function in a worker outside Lambda, beside the sidecar: node worker.mjs CUSTOMER...

import { synchronizeCustomer } from './customer.mjs';

for (const id of process.argv.slice(2)) console.log(JSON.stringify(await synchronizeCustomer(id)));

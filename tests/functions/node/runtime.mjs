// A Runtime API loop for a Node handler, standard library only: node runtime.mjs path/to/module.mjs
//
// AWS's own client for Node needs a C++ toolchain to install; this loop asks for the next event, runs the handler and posts
// what came of it, which is all that the tests and the demo need of it. Like the managed runtime it finds the imports of ES
// modules by NODE_PATH, where a layer's packages are.

import http from 'node:http';
import { register } from 'node:module';
import { pathToFileURL } from 'node:url';

const [host, port] = process.env.AWS_LAMBDA_RUNTIME_API.split(':');
const agent = new http.Agent({ keepAlive: true });

function ask(method, path, body) {
  return new Promise((resolve, reject) => {
    const request = http.request({ host, port, method, path: `/2018-06-01/runtime/${path}`, agent }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (more) => (text += more));
      response.on('end', () => resolve({ headers: response.headers, text }));
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end(body);
  });
}

register('./node-path.mjs', import.meta.url);
const { handler } = await import(pathToFileURL(process.argv[2]).href);
for (;;) {
  const { headers, text } = await ask('GET', 'invocation/next');
  const awsRequestId = headers['lambda-runtime-aws-request-id'];
  const deadline = Number(headers['lambda-runtime-deadline-ms']);
  const context = { awsRequestId, getRemainingTimeInMillis: () => Math.max(0, deadline - Date.now()) };
  try {
    const answer = JSON.stringify(await handler(JSON.parse(text), context)) ?? 'null';
    await ask('POST', `invocation/${awsRequestId}/response`, answer);
  } catch (error) {
    console.error(error);
    const failure = { errorType: error.name, errorMessage: error.message, trace: String(error.stack).split('\n') };
    await ask('POST', `invocation/${awsRequestId}/error`, JSON.stringify(failure));
  }
}

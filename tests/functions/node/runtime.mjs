// A Runtime API loop for a Node handler, standard library only: node runtime.mjs path/to/module.mjs
//
// AWS's own client for Node needs a C++ toolchain to install; this loop asks for the next event, runs the handler and posts
// what came of it, which is all that the tests and the demo need of it. Like the managed runtime it finds the imports of ES
// modules by NODE_PATH, where a layer's packages are; it streams what `awslambda.streamifyResponse` marks; and with
// AWS_LAMBDA_MAX_CONCURRENCY (Managed Instances) it runs so many invocations at once, in AWS_LAMBDA_NODEJS_WORKER_COUNT threads.

import http from 'node:http';
import { register } from 'node:module';
import { pathToFileURL } from 'node:url';
import { isMainThread, Worker } from 'node:worker_threads';

const STREAMING = Symbol.for('aws.lambda.runtime.handler.streaming');
const [host, port] = process.env.AWS_LAMBDA_RUNTIME_API.split(':');
const agent = new http.Agent({ keepAlive: true });
const concurrency = Number(process.env.AWS_LAMBDA_MAX_CONCURRENCY ?? 1);
const workers = Number(process.env.AWS_LAMBDA_NODEJS_WORKER_COUNT ?? 0);

/** A request under way, and its answer. */
function open(method, path, headers = {}) {
  const request = http.request({ host, port, method, path: `/2018-06-01/runtime/${path}`, headers, agent });
  const answer = new Promise((resolve, reject) => {
    request.on('error', reject);
    request.on('response', (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (more) => (text += more));
      response.on('end', () => resolve({ headers: response.headers, text }));
      response.on('error', reject);
    });
  });
  return { request, answer };
}

async function ask(method, path, body) {
  const { request, answer } = open(method, path);
  request.end(body);
  return answer;
}

/** The response is the stream that the handler writes to. An error comes after what was written, in the trailers. */
async function stream(handler, event, context, path) {
  const type = 'Lambda-Runtime-Function-Error-Type';
  const headers = { 'Lambda-Runtime-Function-Response-Mode': 'streaming', 'Transfer-Encoding': 'chunked', Trailer: type };
  const { request, answer } = open('POST', path, headers);
  try {
    await handler(event, request, context);
  } catch (error) {
    console.error(error);
    request.addTrailers({ [type]: error.name });
    request.end();
  }
  await answer;
}

async function invoke(handler, event, context) {
  const path = `invocation/${context.awsRequestId}`;
  if (handler[STREAMING]) return stream(handler, event, context, `${path}/response`);
  let answer;
  try {
    answer = JSON.stringify(await handler(event, context)) ?? 'null';
  } catch (error) {
    console.error(error);
    const failure = { errorType: error.name, errorMessage: error.message, trace: String(error.stack).split('\n') };
    return ask('POST', `${path}/error`, JSON.stringify(failure));
  }
  await ask('POST', `${path}/response`, answer);
}

async function loop(handler) {
  for (;;) {
    const { headers, text } = await ask('GET', 'invocation/next');
    const awsRequestId = headers['lambda-runtime-aws-request-id'];
    const deadline = Number(headers['lambda-runtime-deadline-ms']);
    const context = { awsRequestId, getRemainingTimeInMillis: () => Math.max(0, deadline - Date.now()) };
    await invoke(handler, JSON.parse(text), context);
  }
}

if (isMainThread && workers > 0) {
  const argv = process.argv.slice(2);
  for (let started = 0; started < workers; started += 1) new Worker(new URL(import.meta.url), { argv });
} else {
  globalThis.awslambda = { streamifyResponse: (handler) => Object.assign(handler, { [STREAMING]: 'response' }) };
  register('./node-path.mjs', import.meta.url);
  const { handler } = await import(pathToFileURL(process.argv[2]).href);
  const loops = isMainThread ? concurrency : Math.ceil(concurrency / workers);
  await Promise.all(Array.from({ length: loops }, () => loop(handler)));
}

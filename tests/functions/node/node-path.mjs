// Resolves an ES module's bare imports in the folders of NODE_PATH too, as Lambda's own Node does and plain Node does not.

import { delimiter, join } from 'node:path';
import { pathToFileURL } from 'node:url';

export async function resolve(specifier, context, next) {
  try {
    return await next(specifier, context);
  } catch (error) {
    if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error;
    for (const folder of (process.env.NODE_PATH ?? '').split(delimiter).filter(Boolean)) {
      try {
        // As if it was imported from beside the folder, which is called node_modules.
        return await next(specifier, { ...context, parentURL: pathToFileURL(join(folder, '../module.mjs')).href });
      } catch {
        // The next folder may have it; the first error is told.
      }
    }
    throw error;
  }
}

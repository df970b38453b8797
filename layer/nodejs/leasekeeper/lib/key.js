'use strict';
// Keys and key templates: the same template and values give the same key in every language that shares the table.

const { lockError } = require('./errors.js');
const { MAX_KEY } = require('./wire.js');

const protocol = (message) => lockError('protocol', message);

/** A code unit that is half of a character: it has no form in UTF-8. */
const LONE_SURROGATE = /\p{Surrogate}/u;
const NAME = /^[\p{Alphabetic}_][\p{Alphabetic}\p{N}_]*$/u;

/** The key, if it is one: 1 to 2,048 bytes of UTF-8. */
function checkKey(key) {
  if (typeof key !== 'string') throw new TypeError(`the key must be a string, not ${typeName(key)}`);
  if (key === '') throw protocol('the key is empty');
  if (LONE_SURROGATE.test(key)) throw protocol('the key has half a surrogate pair, which UTF-8 cannot say');
  const length = Buffer.byteLength(key);
  if (length > MAX_KEY) throw protocol(`the key has ${length} bytes; at most ${MAX_KEY} are allowed`);
  return key;
}

function typeName(value) {
  return value === null ? 'null' : typeof value;
}

/** A parsed template: literals are strings, placeholders `{ name }`. */
class KeyTemplate {
  constructor(template) {
    if (typeof template !== 'string') throw new TypeError(`a key template must be a string, not ${typeName(template)}`);
    this.parts = parse(template);
    const values = this.parts.filter((part) => typeof part !== 'string');
    this.names = new Set(values.map((part) => part.name));
    // With two or more values each is framed by its length, so that no two lists of values make the same key.
    this.framed = values.length > 1;
  }

  /** Names that have no placeholder, and placeholders that have no name, are errors. */
  checkNames(names) {
    const given = new Set(names);
    for (const name of given) {
      if (!this.names.has(name)) throw protocol(`the key template has no placeholder ${JSON.stringify(name)}`);
    }
    for (const name of this.names) {
      if (!given.has(name)) throw protocol(`the placeholder ${JSON.stringify(name)} of the key template has no value`);
    }
  }

  render(values = {}) {
    this.checkNames(Object.keys(values));
    const written = (part) => {
      if (typeof part === 'string') return part;
      const value = values[part.name];
      if (typeof value !== 'string') {
        // Languages print other types differently, and would lock different keys.
        throw new TypeError(`the value ${JSON.stringify(part.name)} of the key must be a string, not ${typeName(value)}`);
      }
      return this.framed ? `${Buffer.byteLength(value)}:${value}` : value;
    };
    return checkKey(this.parts.map(written).join(''));
  }
}

function parse(template) {
  const parts = [];
  let literal = '';
  let rest = template;
  for (let at = rest.search(/[{}]/); at >= 0; at = rest.search(/[{}]/)) {
    literal += rest.slice(0, at);
    const brace = rest.slice(at);
    if (brace.startsWith('{{') || brace.startsWith('}}')) {
      literal += brace[0];
      rest = brace.slice(2);
    } else if (brace[0] === '}') {
      throw protocol('the key template has a lone `}`: write `}}` for a literal one');
    } else {
      const end = brace.indexOf('}');
      if (end < 0) throw protocol('the key template has a `{` without its `}`: write `{{` for a literal one');
      if (literal) parts.push(literal);
      literal = '';
      parts.push({ name: placeholder(brace.slice(1, end)) });
      rest = brace.slice(end + 1);
    }
  }
  literal += rest;
  if (literal) parts.push(literal);
  if (parts.length === 0) throw protocol('the key template is empty');
  return parts;
}

function placeholder(name) {
  if (NAME.test(name)) return name;
  throw protocol(
    `the placeholder ${JSON.stringify(name.slice(0, 64))} of the key template is not a valid name: use letters, ` +
      'digits and underscores, and no digit first',
  );
}

/** The key of a template and its values. */
function key(template, values) {
  return new KeyTemplate(template).render(values);
}

module.exports = { KeyTemplate, checkKey, key, typeName };

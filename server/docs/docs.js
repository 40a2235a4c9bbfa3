'use strict';

// Shows /openapi.json. All text becomes text nodes, never HTML.

const methods = ['get', 'post', 'put', 'patch', 'delete'];
let doc;

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== undefined) node.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== '') node.append(child);
  }
  return node;
}

// prose shows text with `code` in it.
function prose(text) {
  return (text || '').split('`').map((part, i) => (i % 2 ? el('code', {}, part) : part));
}

// resolve follows a reference, and returns the name of what it refers to.
function resolve(node) {
  let name = '';
  while (node && node.$ref) {
    const parts = node.$ref.split('/').slice(1);
    name = parts[parts.length - 1];
    node = parts.reduce((at, part) => at[part], doc);
  }
  return {node: node || {}, name};
}

// typeName is the type of a schema in a few words.
function typeName(schema) {
  const {node, name} = resolve(schema);
  if (node.enum) return node.enum.map((value) => JSON.stringify(value)).join(' | ');
  if (node.type === 'array') return 'array of ' + typeName(node.items);
  if (node.type === 'object') return name || (node.additionalProperties ? 'map of ' + typeName(node.additionalProperties) : 'object');
  if (!node.type) return 'any JSON';
  return node.format === 'date-time' ? 'time' : name === 'Duration' ? 'duration' : name === 'ID' ? 'id' : [].concat(node.type).join(' | ');
}

function bounds(node) {
  const words = [];
  if (node.minimum !== undefined) words.push('from ' + node.minimum);
  if (node.maximum !== undefined) words.push('to ' + node.maximum);
  if (node.maxItems !== undefined) words.push('at most ' + node.maxItems);
  if (node.default !== undefined) words.push('default ' + JSON.stringify(node.default));
  return words.join(', ');
}

// entry is the line of a field or parameter, with the fields of its object inside.
function entry(name, schema, required, description, above) {
  const {node, name: named} = resolve(schema);
  const line = el('li', {}, el('b', {}, name), ' ', el('span', {class: 'dim'}, typeName(schema)),
    required ? el('span', {class: 'required'}, ' required') : '', bounds(node) ? el('span', {class: 'dim'}, ', ' + bounds(node)) : '');
  const text = description || (schema && schema.description) || node.description;
  if (text) line.append(el('div', {}, prose(text)));
  const inner = objectOf(schema);
  if (inner && !above.includes(inner.name || named)) {
    line.append(el('details', {}, el('summary', {class: 'dim'}, 'fields'), fields(inner.node, above.concat(inner.name || named))));
  }
  return line;
}

// objectOf finds the object with fields in a schema, an array of it or a map of it.
function objectOf(schema) {
  const {node, name} = resolve(schema);
  if (node.properties) return {node, name};
  if (node.items) return objectOf(node.items);
  if (node.additionalProperties && typeof node.additionalProperties === 'object') return objectOf(node.additionalProperties);
  return undefined;
}

function fields(node, above) {
  const required = node.required || [];
  return el('ul', {class: 'fields'}, Object.entries(node.properties).map(([name, schema]) => entry(name, schema, required.includes(name), '', above)));
}

// example makes a value of a schema: the required fields, and those that have an example.
function example(schema, depth) {
  const {node} = resolve(schema);
  if (node.example !== undefined) return node.example;
  if (node.default !== undefined) return node.default;
  if (node.enum) return node.enum[0];
  if (node.format === 'date-time') return '2030-01-31T12:00:00Z';
  if (node.type === 'array') return depth > 4 ? [] : [example(node.items, depth + 1)];
  if (node.type === 'integer' || node.type === 'number') return node.minimum || 1;
  if (node.type === 'boolean') return true;
  if (node.type === 'string') return 'text';
  if (!node.properties) return {};
  const value = {};
  const required = node.required || [];
  for (const [name, field] of Object.entries(node.properties)) {
    if (required.includes(name)) value[name] = example(field, depth + 1);
  }
  return value;
}

function shellQuote(text) { return "'" + text.replaceAll("'", "'\\''") + "'"; }

function curl(method, path, operation, secured) {
  const url = location.origin + path.replaceAll(/\{(\w+)\}/g, (_, name) => (name === 'id' ? '4711' : name === 'queue' ? 'orders' : name.toUpperCase()));
  let text = 'curl ' + (method === 'get' ? '' : '-X ' + method.toUpperCase() + ' ') + url;
  if (secured) text += ' \\\n  -H "Authorization: Bearer $POSTHASTE_TOKEN"';
  const body = operation.requestBody && resolve(operation.requestBody).node;
  if (body) {
    const value = example(body.content['application/json'].schema, 0);
    text += " \\\n  -H 'Content-Type: application/json' \\\n  -d " + shellQuote(JSON.stringify(value));
  }
  return text;
}

function scopeOf(operation) {
  const security = operation.security || doc.security;
  if (!security.length) return 'no token';
  const scopes = security.flatMap((one) => one.token);
  return scopes.length ? scopes.join(' or ') : 'any token';
}

function bodyOf(content) {
  const [type, media] = Object.entries(content || {})[0] || [];
  if (!type) return '';
  const shown = [el('div', {class: 'dim'}, type + ', ' + typeName(media.schema))];
  const inner = objectOf(media.schema);
  if (inner) shown.push(fields(inner.node, [inner.name]));
  return shown;
}

function show(method, path, shared, operation) {
  const article = el('article', {id: operation.operationId}, el('h3', {}, operation.summary),
    el('div', {class: 'path'}, el('span', {class: 'method ' + method}, method.toUpperCase()), ' ', el('code', {}, path), el('span', {class: 'scope'}, scopeOf(operation))));
  if (operation.description) article.append(el('p', {}, prose(operation.description)));
  const parameters = (shared || []).concat(operation.parameters || []).map((parameter) => resolve(parameter).node);
  if (parameters.length) {
    article.append(el('h4', {}, 'Parameters'), el('ul', {class: 'fields'},
      parameters.map((p) => entry(p.name + (p.in === 'query' ? '' : ' (' + p.in + ')'), p.schema, p.required, p.description, []))));
  }
  if (operation.requestBody) {
    const body = resolve(operation.requestBody).node;
    article.append(el('h4', {}, 'Body' + (body.required ? '' : ', optional')), ...[bodyOf(body.content)].flat());
  }
  article.append(el('h4', {}, 'Responses'));
  for (const [status, reference] of Object.entries(operation.responses)) {
    const {node} = resolve(reference);
    const headers = Object.keys(node.headers || {}).join(', ');
    article.append(el('details', {}, el('summary', {}, el('b', {}, status), ' ', ...prose(node.description)),
      headers ? el('div', {class: 'dim'}, 'Headers: ' + headers) : '', ...[bodyOf(node.content)].flat()));
  }
  article.append(el('h4', {}, 'Example'), el('pre', {}, curl(method, path, operation, scopeOf(operation) !== 'no token')));
  return article;
}

function filter(text) {
  const wanted = text.toLowerCase().split(' ').filter(Boolean);
  for (const link of document.querySelectorAll('#toc a')) {
    const hidden = !wanted.every((word) => link.dataset.text.includes(word));
    link.hidden = hidden;
    document.getElementById(link.hash.slice(1)).hidden = hidden;
  }
}

function render() {
  const main = document.getElementById('main');
  const toc = document.getElementById('toc');
  main.replaceChildren(el('h1', {}, doc.info.title + ' API'), el('p', {class: 'dim'}, 'Version ' + doc.info.version + ', ', el('a', {href: 'openapi.json'}, 'openapi.json')));
  for (const paragraph of doc.info.description.split('\n\n')) main.append(el('p', {}, prose(paragraph)));
  const token = doc.components.securitySchemes.token;
  main.append(el('p', {}, prose(token.description)));
  for (const tag of doc.tags) {
    main.append(el('h2', {}, tag.name), el('p', {}, prose(tag.description)));
    toc.append(el('h2', {}, tag.name));
    for (const [path, item] of Object.entries(doc.paths)) {
      for (const method of methods) {
        const operation = item[method];
        if (!operation || !operation.tags.includes(tag.name)) continue;
        main.append(show(method, path, item.parameters, operation));
        const link = el('a', {href: '#' + operation.operationId}, el('span', {class: 'method ' + method}, method.toUpperCase()), ' ' + operation.summary);
        link.dataset.text = [method, path, operation.summary, operation.operationId].join(' ').toLowerCase();
        toc.append(link);
      }
    }
  }
  document.getElementById('search').addEventListener('input', (event) => filter(event.target.value));
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

fetch('openapi.json').then((response) => {
  if (!response.ok) throw new Error('status ' + response.status);
  return response.json();
}).then((described) => {
  doc = described;
  render();
}).catch((failure) => {
  document.getElementById('state').textContent = '/openapi.json could not be shown: ' + failure.message;
});

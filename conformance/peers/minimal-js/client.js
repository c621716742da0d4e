'use strict';
// A client of Pheby's protocol for Node.js, as the conformance suite wants it (README.md in the archive): the address is the
// last argument, the secret in PHEBY_SECRET, and lines on the input say what its owner does.
const crypto = require('crypto');
const readline = require('readline');
const WebSocket = require('ws');

const url = process.argv.at(-1);
const auth = { Authorization: `Bearer ${process.env.PHEBY_SECRET}` };

// What is shown, by kind: required fields | optional ones. # integer, ? boolean, [ array, { object, else a string.
const SHOWN = {
  conversation: `conversation_id title title_source created_at# updated_at# last_activity_at# history_id history_head#
    | client_conversation_id last_message_preview active_run_id model{ reasoning_effort`,
  message: `message_id conversation_id role origin status text text_truncated? attachments[ created_at#
    | position# index# interim? final? run_id client_message_id delivery completed_at#`,
  run: `run_id conversation_id origin status created_at#
    | started_at# ended_at# usage{ reason error{ parent_run_id parent_tool_call_id description`,
  tool_call: `tool_call_id conversation_id run_id position# name arguments{ arguments_truncated? status started_at#
    truncated? | hermes_call_id description ended_at# duration_ms# result_preview parent_tool_call_id error{`,
  approval: `approval_id kind conversation_id position# description command command_truncated? choices[ answerable? status
    created_at# | run_id tool_call_id pattern decision decided_by{ expires_at#`,
  clarification: `clarification_id conversation_id position# question choices[ multiple? free_text? skippable? status
    created_at# | run_id tool_call_id answer{ answered_by{ expires_at#`,
  attachment: `attachment_id conversation_id message_id file_name media_type size# sha256 inline_image? status created_at#
    expires_at# path | image{`,
};
const INSIDE = {
  model: ['provider', 'model'],
  usage: ['input_tokens', 'output_tokens', 'total_tokens'],
  error: ['code', 'message'],
  decided_by: ['kind', 'device_id', 'client_name'],
  answered_by: ['kind', 'device_id', 'client_name'],
  answer: ['choice_ids', 'text'],
  choices: ['choice_id', 'label'],
  image: ['width', 'height'],
};
const KINDS = Object.keys(SHOWN);
const FIELDS = Object.fromEntries(KINDS.map((kind) => [kind, SHOWN[kind].split('|').flatMap((part, optional) =>
  part.trim().split(/\s+/).map((word) => ({ name: word.replace(/\W$/, ''), type: word.match(/\W$/)?.[0], optional })))]));
const IS = {
  '#': Number.isSafeInteger,
  '?': (value) => typeof value === 'boolean',
  '[': Array.isArray,
  '{': (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
  undefined: (value) => typeof value === 'string',
};
const KIND_OF_EVENT = Object.fromEntries(`conversation.created conversation.updated message.created message.updated
  message.completed run.started run.updated run.ended tool.started tool.completed approval.requested approval.updated
  approval.resolved clarification.requested clarification.resolved attachment.created attachment.expired`
  .split(/\s+/).map((event) => [event, event.split('.')[0].replace('tool', 'tool_call')]));
const OTHER_EVENTS = ['model.changed', 'reasoning.changed', 'history.changed', 'conversation.deleted'];
const IS_OPEN = {
  run: (run) => run.ended_at === undefined,
  message: (message) => message.status === 'streaming',
  tool_call: (call) => call.status === 'running',
  approval: (approval) => approval.status === 'pending',
  clarification: (clarification) => clarification.status === 'pending',
};

// The state

const state = { cursor: null, epoch: null };
for (const kind of KINDS) state[`${kind}s`] = Object.create(null);
const table = (kind) => state[`${kind}s`];
const lastSeq = new Map(); // Of the last event about each thing.

const known = (names, value) => Array.isArray(value) ? value.map((item) => known(names, item))
  : IS['{'](value) ? Object.fromEntries(Object.entries(value).filter(([k, v]) => names.includes(k) && v !== null)) : value;

function decoded(kind, value) { // With the known fields only; null where it is none.
  if (!IS['{'](value)) return null;
  const found = {};
  for (const { name, type, optional } of FIELDS[kind]) {
    const field = value[name] ?? undefined;
    if (field === undefined && optional) continue;
    if (!IS[type](field)) return null;
    found[name] = INSIDE[name] ? known(INSIDE[name], field) : field;
  }
  return found;
}

function merge(kind, value, seq) { // From an answer or a snapshot: what later events said stays.
  const found = decoded(kind, value);
  if (!found) return;
  const id = found[`${kind}_id`];
  const later = Math.max(lastSeq.get(`${kind}/${id}`) ?? -1, lastSeq.get(`deleted/${found.conversation_id}`) ?? -1);
  if (later <= seq) put(kind, id, found);
}

function put(kind, id, found) {
  const isOther = kind === 'conversation' && state.conversations[id] && state.conversations[id].history_id !== found.history_id;
  table(kind)[id] = found;
  if (isOther && Object.values(state.messages).some((message) => message.conversation_id === id)) refetch(id, 0);
}

function drop(conversation, from) { // All of a conversation, or what has ended and stands at a position or behind it.
  for (const kind of KINDS) {
    for (const [id, item] of Object.entries(table(kind))) {
      const isPast = from === undefined || (item.position >= from && !IS_OPEN[kind]?.(item));
      if (item.conversation_id === conversation && isPast) delete table(kind)[id];
    }
  }
}

function refetch(conversation, from) { // What is cached from there on belongs to a history that is no more.
  drop(conversation, from);
  wish('conversation.history', { conversation_id: conversation }, (page) => {
    for (const each of KINDS) for (const item of page[`${each}s`] ?? []) merge(each, item, page.as_of_seq);
  });
}

function apply(event) {
  const isKnown = event.type in KIND_OF_EVENT || OTHER_EVENTS.includes(event.type);
  if (isKnown && (!IS['#'](event.time) || typeof event.conversation_id !== 'string')) return;
  if (!IS['#'](event.seq) || (state.cursor !== null && event.seq <= state.cursor)) return;
  const kind = KIND_OF_EVENT[event.type];
  const conversation = state.conversations[event.conversation_id];
  if (kind) {
    const found = decoded(kind, event[kind]);
    if (!found) return;
    put(kind, found[`${kind}_id`], found);
    lastSeq.set(`${kind}/${found[`${kind}_id`]}`, event.seq);
  } else if (event.type === 'conversation.deleted') {
    lastSeq.set(`deleted/${event.conversation_id}`, event.seq);
    drop(event.conversation_id);
  } else if (event.type === 'model.changed' && conversation) {
    conversation.model = known(INSIDE.model, event.current);
  } else if (event.type === 'reasoning.changed' && conversation) {
    conversation.reasoning_effort = event.current;
  } else if (event.type === 'history.changed') {
    if (!IS['#'](event.from_position) || !IS['#'](event.history_head) || typeof event.history_id !== 'string') return;
    if (conversation) Object.assign(conversation, { history_id: event.history_id, history_head: event.history_head });
    refetch(event.conversation_id, event.from_position);
  }
  state.cursor = event.seq;
}

function applyText(event) { // message.delta and message.replaced
  const message = state.messages[event.message_id];
  const last = event.last_index ?? event.index;
  if (message?.status !== 'streaming' || !IS['#'](last) || typeof event.text !== 'string' || last <= message.index) return;
  if (event.type === 'message.replaced') Object.assign(message, { text: event.text, index: last });
  else if (event.index === message.index + 1) Object.assign(message, { text: message.text + event.text, index: last });
  else wholeText(event.message_id);
}

function wholeText(id, cursor, before = '') {
  wish('message.text', { message_id: id, cursor }, (part) => {
    const message = state.messages[id];
    if (part.next) wholeText(id, part.next, before + part.text);
    else if (message?.status === 'streaming' && part.index > message.index) {
      Object.assign(message, { text: before + part.text, index: part.index });
    }
  });
}

function listAll(cursor, before = []) {
  wish('conversation.list', { cursor }, (page) => {
    const all = [...before, ...page.conversations];
    if (page.next) return listAll(page.next, all);
    for (const item of all) merge('conversation', item, page.as_of_seq);
    for (const id of Object.keys(state.conversations)) {
      const isThere = all.some((item) => item.conversation_id === id);
      if (!isThere && !(lastSeq.get(`conversation/${id}`) > page.as_of_seq)) drop(id);
    }
  });
}

let parts = [];
function applySnapshot(part) { // As a whole: what is open and not in it has ended.
  if (part.part === 0) parts = [];
  parts.push(part);
  if (!part.last) return;
  lastSeq.clear();
  for (const [kind, isOpen] of Object.entries(IS_OPEN)) {
    for (const [id, item] of Object.entries(table(kind))) if (isOpen(item)) delete table(kind)[id];
  }
  const had = Object.keys(state.conversations);
  for (const each of parts) for (const kind of KINDS) for (const item of each[`${kind}s`] ?? []) merge(kind, item, part.seq);
  state.cursor = part.seq;
  const named = new Set(parts.flatMap((each) => each.conversations.map((item) => item.conversation_id)));
  if (had.some((id) => !named.has(id)) || parts.some((each) => each.conversations_next)) listAll();
}

// The line

let socket, synced = false, stopped = false, failures = 0, notBefore = 0, clock = 0, receiptsSince = 0, nextId = 1;
let asked = new Map(); // What waits for its answer on this line, by id.
const wishes = new Map(); // What the state needs, asked on each line until there is an answer.
const commands = new Set(); // What the owner did; likewise.
const device = crypto.randomUUID();

function request(type, fields, answer) {
  const id = String(nextId++);
  asked.set(id, answer);
  socket.send(JSON.stringify({ type, id, ...fields }));
}

function ask(item) {
  item.at ??= Date.now() + clock;
  if (item.at < receiptsSince) return; // The server cannot know any more whether it was done: its owner decides.
  const line = socket;
  request(item.type, item.fields, (answer) => {
    if (answer.type === 'error' && answer.retryable) {
      setTimeout(() => line === socket && synced && item.isWanted() && ask(item), answer.retry_after_ms ?? 1000);
    } else item.done(answer);
  });
}

function wish(type, fields, use) {
  const key = JSON.stringify([type, fields]);
  if (wishes.has(key)) return;
  const done = (answer) => { wishes.delete(key); if (answer.type !== 'error') use(answer); };
  const item = { type, fields, done, isWanted: () => wishes.get(key) === item };
  wishes.set(key, item);
  if (synced) ask(item);
}

function command(type, fields) {
  const done = (answer) => {
    commands.delete(item);
    for (const kind of KINDS) if (answer[kind]) merge(kind, answer[kind], answer.as_of_seq);
  };
  const item = { type, fields, done, isWanted: () => commands.has(item) };
  commands.add(item);
  if (synced) ask(item);
}

function receive(frame) {
  if (typeof frame?.type !== 'string') return;
  if (frame.type === 'batch') frame.events.forEach(receive);
  else if (frame.type === 'snapshot') applySnapshot(frame);
  else if (frame.type === 'message.delta' || frame.type === 'message.replaced') applyText(frame);
  else if (frame.type === 'server.draining') notBefore = Date.now() + frame.reconnect_after_ms;
  else if (frame.type === 'sync.completed') {
    state.cursor = Math.max(state.cursor ?? 0, frame.seq);
    [synced, failures] = [true, 0];
    for (const item of [...wishes.values(), ...commands]) ask(item);
  } else if (frame.id !== undefined) {
    const answer = asked.get(frame.id);
    asked.delete(frame.id);
    answer?.(frame);
  } else apply(frame);
}

function greeted(welcome) {
  if (welcome.type !== 'welcome') return socket.close();
  clock = welcome.server_time - Date.now();
  receiptsSince = welcome.receipts_since;
  if (!welcome.resumed) Object.assign(state, { cursor: null, epoch: welcome.epoch });
}

function connect() {
  const line = socket = new WebSocket(url, { headers: auth, perMessageDeflate: false });
  let isAlive = true, hasEnded = false;
  const heart = setInterval(() => {
    if (!isAlive) return line.terminate();
    isAlive = false;
    if (line.readyState === WebSocket.OPEN) line.ping();
  }, 20_000);
  const end = (code, wait = 0) => {
    if (hasEnded) return;
    hasEnded = true;
    clearInterval(heart);
    stopped ||= [401, 4401, 4406, 4409].includes(code);
    const atOnce = synced && code < 4000; // The first time; then later and later, each client at another time.
    const pause = atOnce ? 0 : Math.min(30_000, 500 * 2 ** failures++) * (0.5 + Math.random() / 2);
    [synced, asked, parts] = [false, new Map(), []];
    if (!stopped) setTimeout(connect, Math.max(pause, wait, notBefore - Date.now()));
  };
  line.on('open', () => {
    const resume = state.cursor === null ? undefined : { epoch: state.epoch, seq: state.cursor };
    const client = { name: 'minimal-js', version: '0.1.0', device_id: device };
    request('hello', { protocol_versions: [1], client, capabilities: ['batch'], resume }, greeted);
  });
  line.on('message', (data, isBinary) => {
    let frame;
    try { frame = isBinary ? null : JSON.parse(data); } catch { return; }
    receive(frame);
  });
  line.on('pong', () => { isAlive = true; });
  line.on('error', () => end(1006));
  line.on('close', (code) => end(code));
  line.on('unexpected-response', (request_, response) => {
    end(response.statusCode, 1000 * (Number(response.headers['retry-after']) || 0));
    request_.destroy();
  });
}

function download(attachment, got = [], tries = 0) {
  const from = got.reduce((sum, bytes) => sum + bytes.length, 0);
  const target = new URL(`../${attachment.path}`, url.replace(/^ws/, 'http'));
  const range = from ? { Range: `bytes=${from}-`, 'If-Range': `"${attachment.sha256}"` } : {};
  const again = () => { if (tries < 5) setTimeout(download, 500 * 2 ** tries, attachment, got, tries + 1); };
  const headers = { ...auth, 'Accept-Encoding': 'identity', ...range };
  require(target.protocol.slice(0, -1)).get(target, { headers }, (response) => {
    if (response.statusCode === 200) got = [];
    else if (response.statusCode !== 206) return response.resume();
    response.on('data', (bytes) => got.push(bytes)).on('error', again).on('end', () => {
      const hash = crypto.createHash('sha256').update(Buffer.concat(got)).digest('hex');
      console.error(`${attachment.attachment_id}: ${hash === attachment.sha256 ? 'complete' : 'not what was announced'}`);
    });
  }).on('error', again);
}

// The owner

const canonical = (value) => Array.isArray(value) ? `[${value.map(canonical)}]` : IS['{'](value)
  ? `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`)}}` : JSON.stringify(value);

const DO = {
  state() {
    const digest = crypto.createHash('sha256').update(canonical(state)).digest('hex');
    console.log(JSON.stringify({ digest, state }));
  },
  send: ({ conversation_id, text }) =>
    command('message.send', { conversation_id, client_message_id: crypto.randomUUID(), text }),
  cancel: ({ run_id }) => command('run.cancel', { run_id }),
  approve: ({ approval_id, choice }) =>
    state.approvals[approval_id]?.choices.includes(choice) && command('approval.respond', { approval_id, choice }),
  answer: ({ clarification_id, choice_ids, text }) =>
    command('clarification.respond', { clarification_id, choice_ids, text }),
  download: ({ attachment_id }) => state.attachments[attachment_id] && download(state.attachments[attachment_id]),
};

const input = readline.createInterface({ input: process.stdin });
input.on('line', (line) => { const wanted = JSON.parse(line); DO[wanted.do]?.(wanted); });
input.on('close', () => process.exit(0));
connect();

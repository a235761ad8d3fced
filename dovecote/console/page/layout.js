// Decide what of the flow is drawn, and where. No element, no clock.
import { rank, worst } from "./states.js";

export const MOST_BOXES = 9; // in each column; the rest is one box
export const MOST_ROWS = 5; // in each box; the rest is one row

const COLUMNS = { outbox: 0, relay: 0, topic: 1, consumer: 2, spark: 2, push: 2, subscription: 2 };
const FOLDED = { 0: ["outbox", "outboxes"], 1: ["topic", "topics"], 2: ["reader", "readers"] };

export function matches(node, { q = "", kind = "", state = "" }) {
  if (kind && node.kind !== kind) return false;
  if (state && node.state !== state) return false;
  if (!q) return true;
  const wanted = q.toLowerCase();
  return node.id.toLowerCase().includes(wanted) || (node.reason ?? "").toLowerCase().includes(wanted);
}

const byName = (one, other) => (one.id < other.id ? -1 : one.id > other.id ? 1 : 0);
const byTrouble = (one, other) => rank(one.worst) - rank(other.worst) || byName(one.node, other.node);

// Nodes that belong to another are rows of its box; each box counts with the worst within it.
function boxes(nodes) {
  const present = new Map(nodes.map((node) => [node.id, node]));
  const found = new Map();
  for (const node of nodes) {
    if (!node.group || !present.has(node.group)) found.set(node.id, { node, rows: [], worst: node.state });
  }
  for (const node of nodes) {
    const owner = node.group && found.get(node.group);
    if (owner) owner.rows.push(node);
    else if (!found.has(node.id)) found.set(node.id, { node, rows: [], worst: node.state });
  }
  for (const box of found.values()) box.worst = worst([box.node.state, ...box.rows.map((row) => row.state)]);
  return [...found.values()];
}

function fold(nodes) {
  const counts = {};
  for (const node of nodes) counts[node.state] = (counts[node.state] ?? 0) + 1;
  return Object.entries(counts).sort(([one], [other]) => rank(one) - rank(other));
}

// Where many are, the worst are drawn, in the order of their names; one more stands for the rest.
function cut(all, most, order, name) {
  if (all.length <= most) return [[...all].sort(name), []];
  const ordered = [...all].sort(order);
  return [ordered.slice(0, most - 1).sort(name), ordered.slice(most - 1)];
}

function reduced(box, places) {
  const [rows, rest] = cut(box.rows, MOST_ROWS, (one, other) => rank(one.state) - rank(other.state) || byName(one, other), byName);
  const id = box.node.id;
  const place = (node, at) => places.set(node.id, at);
  place(box.node, id);
  for (const row of rows) place(row, row.id);
  for (const row of rest) place(row, `${id}\nrest`);
  return { id, node: box.node, rows, rest: rest.length ? { kind: rest[0].kind, group: id, count: rest.length, states: fold(rest) } : null };
}

function column(all, number, places) {
  const [shown, rest] = cut(all, MOST_BOXES, byTrouble, (one, other) => byName(one.node, other.node));
  const found = shown.map((box) => reduced(box, places));
  if (rest.length) {
    const id = `rest\n${number}`;
    const nodes = rest.flatMap((box) => [box.node, ...box.rows]);
    for (const node of nodes) places.set(node.id, id);
    found.push({ id, folded: { names: FOLDED[number], kind: rest[0].node.kind, count: rest.length, states: fold(rest.map((box) => ({ state: box.worst }))) } });
  }
  return found;
}

function joined(edges, places, owners) {
  const found = new Map();
  for (const edge of edges) {
    const from = places.get(edge.from), to = places.get(edge.to);
    if (!from || !to || from === to || owners.get(edge.from) === edge.to || owners.get(edge.to) === edge.from) continue;
    const id = `${from}\n\n${to}`;
    const before = found.get(id) ?? { id, from, to, rate: null };
    if (edge.rate !== null && edge.rate !== undefined) before.rate = (before.rate ?? 0) + edge.rate;
    found.set(id, before);
  }
  return [...found.values()];
}

export function plan(flow, filters) {
  const wanted = flow.nodes.filter((node) => matches(node, filters));
  const kept = new Set(wanted.map((node) => node.id));
  const narrowed = wanted.length < flow.nodes.length;
  // What a chosen part belongs to, and what it is joined to, is drawn with it.
  if (narrowed) {
    const close = new Set(kept);
    if (kept.size <= 40) {
      for (const edge of flow.edges) {
        if (kept.has(edge.from)) close.add(edge.to);
        if (kept.has(edge.to)) close.add(edge.from);
      }
    }
    const groups = new Map(flow.nodes.map((node) => [node.id, node.group]));
    for (const id of [...close]) if (groups.get(id)) close.add(groups.get(id));
    for (const id of close) kept.add(id);
  }
  const drawn = narrowed ? flow.nodes.filter((node) => kept.has(node.id)) : flow.nodes;
  const places = new Map();
  const columns = [[], [], []];
  for (const box of boxes(drawn)) columns[COLUMNS[box.node.kind] ?? 1].push(box);
  const placed = columns.map((all, number) => column(all, number, places));
  const owners = new Map(drawn.map((node) => [node.id, node.group]));
  return { columns: placed, edges: joined(flow.edges, places, owners), matched: wanted };
}

// The flow as a picture: boxes are links, and lines between them show what flows.
import { draw, lag, make, many, plain, put, rate, set } from "./make.js";
import { linkTo, linkWith } from "./routes.js";
import { chip, recolour, said, tone } from "./states.js";

const TITLES = ["Outboxes and relays", "Topics", "Consumers, Spark jobs and push"];
const KINDS = { outbox: "outbox", relay: "relay", topic: "topic", consumer: "consumer", spark: "Spark job", push: "push", subscription: "subscription" };
const ROLES = { retry: "retry topic", dead: "dead letters", progress: "progress topic" };

const called = (node) => ROLES[node.role] ?? KINDS[node.kind] ?? node.kind;
const behind = (node) => Boolean(node.lag && (node.lag.events > 0 || node.lag.seconds > 0));

// Put elements into an order, and touch only those that are elsewhere.
function arrange(parent, wanted) {
  wanted.forEach((element, number) => {
    if (parent.children[number] !== element) parent.insertBefore(element, parent.children[number] ?? null);
  });
  while (parent.children.length > wanted.length) parent.lastChild.remove();
}

function line(node, place) {
  const mark = chip(node.state);
  const name = make("span", { class: "name" });
  const kind = make("span", { class: "kind" });
  const numbers = make("span", { class: "numbers" });
  const element = make("a", { class: place, href: linkTo(node.id), "data-id": node.id, draggable: "false" }, make("span", { class: "words" }, name, kind), mark, numbers);
  return {
    element,
    update(now, doubtful) {
      recolour(mark, now.state, doubtful);
      put(name, now.name);
      set(name, "title", now.name);
      put(kind, called(now));
      const shown = [];
      if (now.rate !== null && now.rate !== undefined) shown.push(rate(now.rate));
      if (behind(now)) shown.push(now.role === "dead" ? plain(now.lag.events) : `${lag(now.lag)} behind`);
      put(numbers, shown.join(" · "));
    },
  };
}

function heap(states, doubtful) {
  return states.map(([state, count]) => {
    const element = chip(state, doubtful);
    element.lastChild.textContent = `${plain(count)} ${said(state, doubtful).word}`;
    return element;
  });
}

function folded(id, filters) {
  const words = make("span", { class: "name" });
  const states = make("span", { class: "heap" });
  const element = make("a", { class: "row rest", "data-id": id }, words, states);
  let before = "";
  return {
    element,
    update(text, kind, q, counted, doubtful) {
      const now = JSON.stringify([text, counted, doubtful]);
      set(element, "href", linkWith("", { ...filters(), kind, q }));
      if (now === before) return;
      before = now;
      put(words, text);
      states.replaceChildren(...heap(counted, doubtful));
    },
  };
}

export function picture(filters) {
  const columns = TITLES.map((title) => {
    const list = make("ul", { class: "boxes" });
    const heading = make("h3", { text: title });
    return { element: make("div", { class: "column" }, heading, list), list };
  });
  const lines = draw("svg", { class: "lines", role: "img", "aria-label": "Which part feeds which" });
  const title = make("h2", { id: "picture-title", text: "Flow" });
  const field = make("div", { class: "field" }, lines, ...columns.map((each) => each.element));
  const element = make("section", { class: "picture", "aria-labelledby": "picture-title" }, title, field);
  const cards = new Map(), parts = new Map(), paths = new Map();
  let edges = [], shape = "";

  function part(id, build) {
    if (!parts.has(id)) parts.set(id, build());
    used.add(id);
    return parts.get(id);
  }
  let used = new Set();

  function card(box, doubtful) {
    if (!cards.has(box.id)) cards.set(box.id, make("li", { class: "box" }));
    const element = cards.get(box.id);
    const rows = [];
    if (box.folded) {
      const { count, names, kind, states } = box.folded;
      const rest = part(box.id, () => folded(box.id, filters));
      rest.update(`${plain(count)} more ${count === 1 ? names[0] : names[1]}`, kind, filters().q, states, doubtful(""));
      set(element, "class", "box folded");
      rows.push(rest.element);
    } else {
      const bad = tone(box.node.state);
      set(element, "class", `box ${doubtful(box.node.id) ? "grey" : bad}`);
      const head = part(box.id, () => line(box.node, "head"));
      head.update(box.node, doubtful(box.node.id, box.node.group));
      rows.push(head.element);
      for (const row of box.rows) {
        const each = part(row.id, () => line(row, "row"));
        each.update(row, doubtful(row.id, row.group));
        rows.push(each.element);
      }
      if (box.rest) {
        const rest = part(`${box.id}\nrest`, () => folded(`${box.id}\nrest`, filters));
        rest.update(`${plain(box.rest.count)} more`, box.rest.kind, `${box.id}/`, box.rest.states, doubtful(box.id));
        rows.push(rest.element);
      }
    }
    arrange(element, rows);
    return element;
  }

  function update(planned, doubtful) {
    used = new Set();
    const seen = new Set();
    planned.columns.forEach((boxes, number) => {
      arrange(columns[number].list, boxes.map((box) => { seen.add(box.id); return card(box, doubtful); }));
      columns[number].element.hidden = !boxes.length;
    });
    for (const id of cards.keys()) if (!seen.has(id)) cards.delete(id);
    for (const id of parts.keys()) if (!used.has(id)) parts.delete(id);
    edges = planned.edges;
    const now = [...used, ...edges.map((edge) => edge.id)].join("\n\n\n");
    if (now !== shape) { shape = now; trace(); }
    for (const edge of edges) {
      const path = paths.get(edge.id);
      if (path) set(path, "class", edge.rate > 0 && !doubtful("") ? "moves" : "");
    }
    set(lines, "aria-label", told(planned));
  }

  // Read all places first and write after that, so that the browser lays out once.
  function trace() {
    if (!field.isConnected) return;
    const around = field.getBoundingClientRect();
    const places = new Map();
    for (const [id, each] of parts) places.set(id, each.element.getBoundingClientRect());
    for (const [id, path] of paths) if (!edges.some((edge) => edge.id === id)) { path.remove(); paths.delete(id); }
    const stacked = around.width < 700;
    set(lines, "viewBox", `0 0 ${around.width} ${around.height}`);
    set(lines, "width", String(around.width));
    set(lines, "height", String(around.height));
    for (const edge of edges) {
      const from = places.get(edge.from), to = places.get(edge.to);
      if (!from || !to) continue;
      if (!paths.has(edge.id)) {
        paths.set(edge.id, draw("path", { "data-from": edge.from, "data-to": edge.to }));
        lines.append(paths.get(edge.id));
      }
      set(paths.get(edge.id), "d", stacked ? gutter(from, to, around) : curve(from, to, around));
    }
  }
  const watcher = new ResizeObserver(() => trace());
  watcher.observe(field);
  const light = (event) => {
    const id = event.type.startsWith("pointer") || event.type === "focusin" ? event.target.closest?.("[data-id]")?.dataset.id : null;
    for (const [, path] of paths) path.classList.toggle("lit", Boolean(id) && (path.dataset.from === id || path.dataset.to === id) && event.type !== "pointerleave");
  };
  field.addEventListener("pointerover", light);
  field.addEventListener("pointerleave", light);
  field.addEventListener("focusin", light);
  return { element, update, close: () => watcher.disconnect() };
}

const number = (value) => value.toFixed(1);

function curve(from, to, around) {
  const back = to.left < from.left;
  const x = (back ? from.left : from.right) - around.left, y = from.top + from.height / 2 - around.top + (back ? 5 : 0);
  const end = (back ? to.right : to.left) - around.left, low = to.top + to.height / 2 - around.top + (back ? 5 : 0);
  const bend = (end - x) / 2;
  return `M${number(x)} ${number(y)}C${number(x + bend)} ${number(y)} ${number(end - bend)} ${number(low)} ${number(end)} ${number(low)}`;
}

// Below each other, as on a phone: lines run beside the boxes.
function gutter(from, to, around) {
  const x = from.left - around.left, end = to.left - around.left;
  const y = from.top + from.height / 2 - around.top, low = to.top + to.height / 2 - around.top;
  return `M${number(x)} ${number(y)}C${number(-6)} ${number(y)} ${number(-6)} ${number(low)} ${number(end)} ${number(low)}`;
}

function told(planned) {
  const clear = (id) => id.replace(/^rest\n\d$/, "other parts").replace(/\nrest$/, " and more");
  const all = planned.edges.slice(0, 60).map((edge) => `${clear(edge.from)} feeds ${clear(edge.to)}${edge.rate ? ` at ${rate(edge.rate)}` : ""}`);
  const more = planned.edges.length - all.length;
  return `${many(planned.edges.length, "connection")}. ${all.join("; ")}${more > 0 ? `; and ${plain(more)} more` : ""}.`;
}

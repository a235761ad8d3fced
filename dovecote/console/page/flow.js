// The first view: troubles, the picture, and a list of all parts.
import { lag, make, many, plain, put, rate, set } from "./make.js";
import { plan } from "./layout.js";
import { picture } from "./picture.js";
import { linkTo, linkWith } from "./routes.js";
import { chip, rank, recolour, said, STATES } from "./states.js";
import { table } from "./tables.js";
import { troubles } from "./troubles.js";

const KINDS = [["", "all kinds"], ["outbox", "outboxes"], ["relay", "relays"], ["topic", "topics"], ["consumer", "consumers"], ["spark", "Spark jobs"], ["push", "push"], ["subscription", "subscriptions"]];

const EXAMPLE = `[sources.outbox.shop]
dsn = "host=db.internal dbname=shop"
metrics = ["http://relay.internal:9464"]

[sources.consumer.shipping]
group = "shipping"
topics = ["orders"]

[sources.push.main]
config = "push.toml"`;

function choice(label, name, options, value, act) {
  const select = make("select", { name, onchange: act }, options.map(([key, text]) => make("option", { value: key, text })));
  select.value = value ?? "";
  return make("label", {}, make("span", { text: label }), select);
}

function nothing() {
  return make("section", { class: "note" },
    make("h2", { text: "The settings file names no part" }),
    make("p", { text: "Name what there is under sources in the file that --config names, then start the console again:" }),
    make("pre", { tabindex: "0", "aria-label": "An example of the settings file", text: EXAMPLE }));
}

export function open(root, { filters }, app) {
  let chosen = { q: filters.q ?? "", kind: filters.kind ?? "", state: filters.state ?? "" };
  const top = troubles();
  const counts = make("ul", { class: "counts", "aria-label": "Parts by state" });
  const drawn = picture(() => chosen);
  const search = make("input", { type: "search", name: "q", value: chosen.q, autocomplete: "off", spellcheck: "false", maxlength: "200", oninput: change });
  const kinds = choice("Kind", "kind", KINDS, chosen.kind, change);
  const states = choice("State", "state", [["", "all states"], ...STATES.map((state) => [state, state])], chosen.state, change);
  const found = make("span", { class: "quiet", role: "status" });
  const form = make("form", { class: "filters", role: "search", "aria-label": "Filter the parts", onsubmit: (event) => event.preventDefault() },
    make("label", {}, make("span", { text: "Name" }), search), kinds, states, found);
  const listed = table("All parts", [
    { title: "Part", heads: true, long: true }, { title: "State" }, { title: "Why", wide: true, long: true },
    { title: "Rate", number: true }, { title: "Lag", number: true },
  ], fill, { keyOf: (node) => node.id, empty: "No part matches the filter." });
  const empty = nothing();
  const parts = make("section", { "aria-labelledby": "parts-title" }, make("h2", { id: "parts-title", text: "All parts" }), listed.element);
  const bar = make("div", { class: "bar" }, counts, form);
  root.replaceChildren(top.element, bar, drawn.element, parts, empty);
  const tally = new Map();
  let latest = null;

  function change() {
    const next = { q: search.value.trim(), kind: kinds.lastChild.value, state: states.lastChild.value };
    if (JSON.stringify(next) === JSON.stringify(chosen)) return;
    chosen = next;
    history.replaceState(null, "", linkWith("", chosen));
    listed.first();
    if (latest) update(latest);
  }

  function fill(node, cells) {
    if (!cells[0].firstChild) {
      cells[0].append(make("a", { href: linkTo(node.id) }));
      cells[1].append(chip(node.state));
    }
    put(cells[0].firstChild, node.id);
    recolour(cells[1].firstChild, node.state, app.doubtful(node.id, node.group));
    put(cells[2], node.reason ?? "");
    put(cells[3], rate(node.rate));
    put(cells[4], lag(node.lag));
  }

  // What the page doubts is not counted as what it was.
  function count(flow) {
    const sums = new Map();
    for (const node of flow.nodes) {
      const { word } = said(node.state, app.doubtful(node.id, node.group));
      const state = word.startsWith("was ") ? word : node.state;
      sums.set(state, (sums.get(state) ?? 0) + 1);
    }
    const ordered = [...sums].sort(([one], [other]) => rank(one) - rank(other));
    for (const [state, number] of ordered) {
      if (!tally.has(state)) {
        const old = state.startsWith("was ");
        const mark = chip(old ? state.slice(4) : state, old);
        const link = make("a", {}, mark);
        tally.set(state, { element: make("li", {}, link), link, mark });
      }
      const each = tally.get(state);
      const bare = state.replace(/^was /, "");
      set(each.link, "href", linkWith("", { ...chosen, state: chosen.state === bare ? "" : bare }));
      set(each.link, "aria-current", chosen.state === bare ? "true" : "false");
      put(each.mark.lastChild, `${plain(number)} ${state}`);
    }
    const wanted = ordered.map(([state]) => tally.get(state).element);
    wanted.forEach((element, place) => { if (counts.children[place] !== element) counts.insertBefore(element, counts.children[place] ?? null); });
    while (counts.children.length > wanted.length) counts.lastChild.remove();
  }

  function update(flow) {
    latest = flow;
    performance.mark("flow-begin");
    const any = flow.nodes.length > 0;
    empty.hidden = any;
    for (const each of [bar, drawn.element, parts]) each.hidden = !any;
    top.update(flow, app.doubtful);
    count(flow);
    const planned = plan(flow, chosen);
    drawn.update(planned, app.doubtful);
    const sorted = planned.matched.sort((one, other) => rank(one.state) - rank(other.state) || (one.id < other.id ? -1 : 1));
    listed.update(sorted);
    const narrowed = sorted.length < flow.nodes.length;
    put(found, narrowed ? `${plain(sorted.length)} of ${many(flow.nodes.length, "part")}` : many(sorted.length, "part"));
    void root.offsetHeight; // The measure includes the layout.
    performance.mark("flow-end");
    performance.measure("flow", "flow-begin", "flow-end");
  }
  return { title: "Flow", heading: top.title, update, close: drawn.close };
}

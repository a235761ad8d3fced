// One part: what it does, why, its processes, its tables, doctor's findings, and its last hours.
import { ask } from "./asking.js";
import { chart, named } from "./charts.js";
import { ago, clock, lag, make, note, prose, put, rate, set } from "./make.js";
import { linkTo, linkWith } from "./routes.js";
import { chip, recolour } from "./states.js";
import { table } from "./tables.js";

const RANGES = [[15, "15 minutes"], [60, "1 hour"], [360, "6 hours"], [1440, "24 hours"]];
const HISTORY_EVERY = 15000; // milliseconds
const LEVELS = { ok: ["well", "working"], warn: ["look at it", "behind"], fail: ["wrong", "failing"] };

const block = (title, ...content) => {
  const heading = make("h2", { text: title });
  return make("section", {}, heading, ...content);
};

export function open(root, { id }, app) {
  const heading = make("h1", { text: id, tabindex: "-1", class: "long" });
  const mark = chip("unknown");
  const since = make("span", { class: "quiet" });
  const reason = make("p", { class: "reason" });
  const troubles = make("ul", { class: "troubles", "aria-label": "Troubles of this part" });
  const facts = make("dl", { class: "facts" });
  const near = make("p", { class: "near" });
  const error = note("", "bad");
  error.setAttribute("role", "alert");
  const charts = make("div", { class: "charts" });
  const range = make("select", { id: "range", onchange: () => { histories = 0; look(); } }, RANGES.map(([minutes, text]) => make("option", { value: String(minutes), text })));
  range.value = "60";
  const none = make("p", { class: "quiet", text: "Asking for the samples…" });
  const history = block("History", make("label", { class: "inline", for: "range" }, "Of the last ", range), none, charts);
  const processes = table("Processes", [
    { title: "Process", heads: true, long: true }, { title: "State" }, { title: "Role" }, { title: "Why", long: true }, { title: "Heard at" },
  ], (row, cells) => {
    if (!cells[1].firstChild) cells[1].append(chip(row.state));
    put(cells[0], row.url);
    recolour(cells[1].firstChild, row.state, app.doubtful(id));
    put(cells[2], row.role ?? "");
    put(cells[3], row.reason ?? "");
    put(cells[4], clock(row.at));
  }, { keyOf: (row) => row.url, empty: "No process of this part is named: add its addresses to metrics in the settings file." });
  const ran = block("Processes", processes.element);
  const tables = make("div", { class: "stack" });
  const doctor = make("ul", { class: "findings" });
  const examined = block("Doctor's findings", doctor);
  const top = make("section", { class: "top" },
    make("nav", { "aria-label": "Where this is", class: "crumbs" }, make("a", { href: "#/", text: "Flow" }), make("span", { text: " / ", "aria-hidden": "true" }), id),
    make("div", { class: "line" }, heading, mark, since), reason, error, troubles, facts, near);
  root.replaceChildren(top, history, ran, tables, examined);
  error.hidden = true;
  const drawn = new Map(), shown = new Map();
  let busy = false, histories = 0, closed = false, owner = null;

  async function look() {
    if (busy || closed) return;
    busy = true;
    try {
      const told = await ask(`/api/part?id=${encodeURIComponent(id)}`);
      if (closed) return;
      show(told);
      error.hidden = true;
      if (Date.now() - histories >= HISTORY_EVERY) await past();
    } catch (problem) {
      put(error, problem.message);
      error.hidden = false;
    } finally {
      busy = false;
    }
  }

  async function past() {
    histories = Date.now();
    const minutes = Number(range.value);
    const { series } = await ask(`/api/history?id=${encodeURIComponent(id)}&minutes=${minutes}`);
    for (const [name, old] of drawn) if (!series.some((each) => each.name === name)) { old.element.remove(); drawn.delete(name); }
    for (const each of series) {
      if (!drawn.has(each.name)) {
        drawn.set(each.name, chart(each, minutes));
        charts.append(drawn.get(each.name).element);
      } else drawn.get(each.name).update(each, minutes);
    }
    put(none, series.length ? `Samples of ${series.map((each) => named(each).toLowerCase()).join(", ")}.` : "There are no samples yet: they begin when the console does.");
    none.className = series.length ? "unseen" : "quiet";
  }

  function show({ node, processes: running, tables: all, doctor: found }) {
    owner = node.group;
    recolour(mark, node.state, app.doubtful(id, owner));
    put(reason, node.reason ?? "");
    reason.hidden = !node.reason;
    const pairs = [["kind", node.role || node.kind], ["rate", rate(node.rate)], ["lag", lag(node.lag)], ...(node.facts ?? [])];
    const text = JSON.stringify(pairs);
    if (facts.dataset.text !== text) {
      facts.dataset.text = text;
      facts.replaceChildren(...pairs.map(([name, value]) => make("div", {}, make("dt", { text: name }), make("dd", { text: value }))));
    }
    put(since, node.since && app.flow ? `for ${ago(node.since, app.flow.at)}, since ${clock(node.since)}` : "");
    ran.hidden = node.kind === "topic";
    processes.update(running);
    all.forEach((each) => fillTable(each));
    const titles = new Set(all.map((each) => each.title));
    for (const [title, old] of shown) if (!titles.has(title)) { old.section.remove(); shown.delete(title); }
    examined.hidden = found === null || found === undefined;
    const findings = JSON.stringify(found);
    if (doctor.dataset.text !== findings) {
      doctor.dataset.text = findings;
      doctor.replaceChildren(...(found ?? []).map(finding));
      if (found && !found.length) doctor.append(make("li", { text: "Doctor found nothing to say." }));
    }
  }

  function fillTable({ title, columns, rows }) {
    const before = shown.get(title);
    if (before && before.columns === columns.join("\n")) { before.list.update(rows); return; }
    const numeric = columns.map((_, at) => rows.length > 0 && rows.every((row) => typeof row[at] === "number" || row[at] === null));
    const list = table(title, columns.map((name, at) => ({ title: name, heads: at === 0, number: numeric[at], long: !numeric[at] })),
      (row, cells) => cells.forEach((cell, at) => put(cell, typeof row[at] === "number" ? row[at].toLocaleString("en") : String(row[at] ?? "–"))), {});
    const section = block(title, list.element);
    if (before) before.section.replaceWith(section);
    else tables.append(section);
    shown.set(title, { section, list, columns: columns.join("\n") });
    list.update(rows);
  }

  // Troubles and neighbours are of the flow, which comes anyway.
  function update(flow) {
    const node = flow.nodes.find((each) => each.id === id);
    if (node) recolour(mark, node.state, app.doubtful(id, node.group));
    else recolour(mark, "unknown");
    const mine = flow.troubles.filter((each) => each.part === id || each.part.startsWith(`${id}/`)).slice(0, 20);
    const text = JSON.stringify(mine) + app.doubtful(id);
    if (troubles.dataset.text !== text) {
      troubles.dataset.text = text;
      troubles.replaceChildren(...mine.map((each) => make("li", { class: "trouble" },
        make("div", { class: "line" }, chip(each.state, app.doubtful(each.part)), make("strong", { class: "what", text: each.title }), make("span", { class: "since", text: `for ${ago(each.since, flow.at)}` })),
        prose(make("p", { class: "todo" }), each.todo ?? ""))));
    }
    troubles.hidden = !mine.length;
    const before = flow.edges.filter((edge) => edge.to === id).map((edge) => edge.from);
    const after = flow.edges.filter((edge) => edge.from === id).map((edge) => edge.to);
    const links = JSON.stringify([before, after, node?.group]);
    if (near.dataset.text !== links) {
      near.dataset.text = links;
      near.replaceChildren();
      for (const [words, ids] of [["Part of", node?.group ? [node.group] : []], ["Fed by", before], ["Feeds", after]]) {
        if (!ids.length) continue;
        near.append(make("span", { text: words }), ...ids.slice(0, 8).flatMap((each) => [" ", make("a", { href: linkTo(each), text: each })]));
        if (ids.length > 8) near.append(` and ${ids.length - 8} more. `);
        near.append(" ");
      }
      if (["consumer", "push", "spark", "outbox", "subscription"].includes(node?.kind)) near.append(make("a", { href: linkWith("dead", { part: id }), text: "Its dead letters" }));
      if (node?.kind === "topic") near.append(make("a", { href: linkWith("dead", { topic: node.name }), text: "Dead letters from it" }));
    }
    look();
  }
  look();
  return { title: id, heading, update, close() { closed = true; } };
}

function finding({ level, text, todo }) {
  const [word, state] = LEVELS[level] ?? [level, "unknown"];
  const mark = chip(state);
  set(mark, "data-state", level);
  put(mark.lastChild, word);
  return make("li", {}, mark, make("div", {}, make("p", { text }), todo ? prose(make("p", { class: "todo" }), todo) : null));
}

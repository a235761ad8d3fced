// What needs somebody, worst first; and what is said aloud of it.
import { ago, clock, make, many, plain, prose, put, set } from "./make.js";
import { linkTo, safe } from "./routes.js";
import { chip, recolour } from "./states.js";

const FEW = 6;
const QUIET = 5000; // milliseconds between two announcements

function entry(trouble) {
  const mark = chip(trouble.state);
  const link = make("a", { class: "what" });
  const part = make("span", { class: "part" });
  const since = make("span", { class: "since" });
  const todo = make("p", { class: "todo" });
  const element = make("li", { class: "trouble" }, make("div", { class: "line" }, mark, link, since), part, todo);
  return {
    element,
    update(now, at, doubtful) {
      recolour(mark, now.state, doubtful);
      put(link, now.title);
      set(link, "href", safe(now.link, now.part));
      put(part, now.part);
      const time = ago(now.since, at);
      put(since, time ? `for ${time}` : "");
      set(since, "title", `since ${clock(now.since)}`);
      prose(todo, now.todo ?? "");
    },
  };
}

const keyOf = (trouble) => `${trouble.part}\n${trouble.title}`;

// A source that could not be asked is a trouble too, even where the server has no other for it.
// A process has one: that of its part.
function unseen(flow) {
  const told = new Set(flow.troubles.map((trouble) => trouble.part));
  const drawn = new Set(flow.nodes.map((node) => node.id));
  return (flow.sources ?? []).filter((source) => (
    !source.ok && !told.has(source.part) && !source.part.includes("://")
  )).map((source) => ({
    part: source.part, state: "unknown", since: source.at, link: drawn.has(source.part) ? linkTo(source.part) : "#/",
    title: source.error || "This part could not be asked.",
    todo: "What the page shows of this part is old. Check that its servers can be reached from here.",
  }));
}

export const allOf = (flow) => [...flow.troubles, ...unseen(flow)];

export function troubles() {
  const title = make("h1", { text: "Troubles", tabindex: "-1" });
  const list = make("ol", { class: "troubles", "aria-label": "Troubles, worst first" });
  const well = make("p", { class: "well" });
  const more = make("button", { type: "button", hidden: true, onclick: () => { all = !all; redraw?.(); } });
  const element = make("section", { class: "top", "aria-labelledby": "troubles-title" }, title, well, list, more);
  title.id = "troubles-title";
  const entries = new Map();
  let all = false, redraw = null;
  function update(flow, doubtful) {
    redraw = () => update(flow, doubtful);
    const found = allOf(flow);
    const shown = all ? found.slice(0, 200) : found.slice(0, FEW);
    put(title, found.length ? many(found.length, "trouble") : "No troubles");
    well.hidden = found.length > 0;
    put(well, summary(flow, doubtful));
    const keys = new Set(shown.map(keyOf));
    for (const [key, old] of entries) if (!keys.has(key)) { old.element.remove(); entries.delete(key); }
    shown.forEach((trouble, number) => {
      const key = keyOf(trouble);
      if (!entries.has(key)) entries.set(key, entry(trouble));
      const each = entries.get(key);
      each.update(trouble, flow.at, doubtful(trouble.part));
      if (list.children[number] !== each.element) list.insertBefore(each.element, list.children[number] ?? null);
    });
    list.hidden = !found.length;
    more.hidden = found.length <= FEW;
    put(more, all ? "Show the worst only" : `Show all ${plain(found.length)}`);
    set(more, "aria-expanded", String(all));
  }
  return { element, title, update };
}

function summary(flow, doubtful) {
  if (!flow.nodes.length) return "There is nothing to watch yet.";
  const open = flow.nodes.filter((node) => node.state === "unknown" || doubtful(node.id, node.group)).length;
  if (open) return `Nothing is known to be wrong, but ${many(open, "part was", "parts were")} not heard within the last minute.`;
  return `${many(flow.nodes.length, "part was", "parts were")} heard within the last minute, and none needs you.`;
}

// Say what began and what ended, and never more often than a reader can listen.
export function announcer(place) {
  let before = null, waiting = null;
  const begun = new Map(), ended = new Map();
  function say() {
    waiting = null;
    const words = [];
    if (begun.size) words.push(begun.size > 3 ? `${begun.size} new troubles.` : [...begun.values()].map((each) => `New trouble: ${each.part}: ${each.title}.`).join(" "));
    if (ended.size) words.push(ended.size > 3 ? `${ended.size} troubles ended.` : [...ended.values()].map((each) => `Ended: ${each.part}: ${each.title}.`).join(" "));
    begun.clear();
    ended.clear();
    if (words.length) put(place, words.join(" "));
  }
  return (flow) => {
    // The part and its state name a trouble: its title holds counts that change all the time.
    const now = new Map(allOf(flow).map((each) => [`${each.part}\n${each.state}`, each]));
    if (before) {
      for (const [key, each] of now) if (!before.has(key)) { if (!ended.delete(key)) begun.set(key, each); }
      for (const [key, each] of before) if (!now.has(key)) { if (!begun.delete(key)) ended.set(key, each); }
    } else if (now.size) put(place, `${many(now.size, "trouble")}.`);
    before = now;
    if ((begun.size || ended.size) && waiting === null) waiting = setTimeout(say, QUIET);
  };
}

// The life of one event: where it is now, and each step in the order of time.
import { ask, query } from "./asking.js";
import { clock, make, many, note, put, span } from "./make.js";
import { linkTo, linkWith } from "./routes.js";

export function open(root, { filters }) {
  const heading = make("h1", { text: "Find an event", tabindex: "-1" });
  const input = (name, label, value, hint) => {
    const element = make("input", { type: "text", name, autocomplete: "off", spellcheck: "false", maxlength: "1000", placeholder: hint });
    element.value = value ?? "";
    return [element, make("label", {}, make("span", { text: label }), element)];
  };
  const [id, idLabel] = input("id", "Event's id", filters.id);
  id.className = "id";
  const [key, keyLabel] = input("key", "or its key", filters.key);
  const [topic, topicLabel] = input("topic", "Topic", filters.topic, "all");
  const [since, sinceLabel] = input("since", "Since", filters.since, "1h or 2026-11-27");
  const said = make("p", { class: "quiet", role: "status" });
  const form = make("form", { class: "filters", role: "search", "aria-label": "Find an event", onsubmit: apply },
    idLabel, keyLabel, topicLabel, sinceLabel, make("div", { class: "row" }, make("button", { type: "submit", class: "first", text: "Find" })));
  const result = make("div", { class: "stack" });
  root.replaceChildren(make("section", { class: "top" }, heading, form, said), result);
  let stop = null;

  function apply(event) {
    event.preventDefault();
    const wanted = { id: id.value.trim(), key: id.value.trim() ? "" : key.value.trim(), topic: topic.value.trim(), since: since.value.trim() };
    if (!wanted.id && !wanted.key) { put(said, "Write the id of an event, or a key."); id.focus(); return; }
    const link = linkWith("find", wanted);
    if (link === location.hash) look(wanted);
    else location.hash = link;
  }

  async function look(wanted) {
    stop?.abort();
    stop = new AbortController();
    put(said, "Looking through all parts…");
    result.replaceChildren();
    try {
      const life = await ask(`/api/find${query(wanted)}`, { signal: stop.signal });
      result.replaceChildren(...shown(life));
      put(said, `${many(life.steps.length, "step")} found.`);
    } catch (error) {
      if (error.name === "AbortError") return;
      put(said, "");
      result.replaceChildren(note(error.message, "bad"));
    }
  }
  if (filters.id || filters.key) look(filters);
  return { title: filters.id || filters.key ? `Find ${filters.id || filters.key}` : "Find", heading, update() {}, close() { stop?.abort(); } };
}

function shown(life) {
  const places = (life.looked ?? []).map(({ part, from, to }) => make("li", { text: `${part}: from ${clock(from)} to ${clock(to)}` }));
  return [
    make("section", { class: "card where-now", "aria-labelledby": "where" },
      make("h2", { id: "where", text: "Where it is now" }), make("p", { class: "large", text: life.where }),
      life.waits_for ? make("p", { class: "long", text: life.waits_for }) : ""),
    ...(life.failures ?? []).map(({ part, error }) => note(`${part} could not be asked: ${error}`, "bad")),
    make("section", { "aria-labelledby": "life" }, make("h2", { id: "life", text: "Its life" }),
      life.steps.length ? make("ol", { class: "timeline" }, steps(life.steps)) : make("p", { class: "quiet", text: "No part knows of it." })),
    make("details", { open: !life.steps.length }, make("summary", { text: "What was looked at" }), make("ul", {}, places)),
  ];
}

function steps(all) {
  let before = null;
  return all.map(({ at, part, what, detail }) => {
    const seconds = before && at ? (new Date(at) - new Date(before)) / 1000 : null;
    before = at ?? before;
    const text = typeof detail === "string" || detail === null || detail === undefined ? detail : JSON.stringify(detail);
    return make("li", {},
      make("span", { class: "when" }, make("time", { datetime: at ?? null, text: clock(at) }), seconds > 0 ? make("span", { class: "sub", text: ` +${span(seconds)}` }) : null),
      make("div", {}, make("p", { class: "what", text: what }), make("a", { href: linkTo(part), text: part }), text ? make("p", { class: "sub long", text }) : null));
  });
}

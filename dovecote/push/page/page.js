// What operators see of `dovecote push serve`. All text goes through textContent: whatever a record or
// a stranger's endpoint says is shown, and never becomes part of the page.
"use strict";

const EVERY = 2000; // milliseconds between two looks
const POINTS = 60; // of each line: two minutes
const find = (id) => document.getElementById(id);
const rates = new Map(); // id -> {delivered, at, points}
let chosen = null;

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function button(text, act) {
  const element = make("button", text);
  element.type = "button";
  element.addEventListener("click", async (event) => {
    event.stopPropagation();
    element.disabled = true;
    try {
      await act();
      say("");
    } catch (error) {
      say(error.message);
    }
    element.disabled = false;
    await look();
  });
  return element;
}

async function ask(method, path, body) {
  const headers = {};
  if (find("token").value) headers.Authorization = `Bearer ${find("token").value}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(told.error || `the API answers ${answer.status}`);
  return told;
}

const at = (id, rest = "") => `/subscriptions/${encodeURIComponent(id)}${rest}`;
const plain = (number) => (number === null ? "–" : number.toLocaleString("en"));
const milliseconds = (number) => (number === null ? "–" : `${number < 10 ? number.toFixed(1) : plain(Math.round(number))} ms`);
const clock = (time) => time.toLocaleTimeString("en-GB");

function say(text) {
  find("error").textContent = text;
  find("error").hidden = !text;
}

function stand(text, className) {
  find("state").textContent = text;
  find("state").className = className;
}

function rate(each) {
  const now = performance.now();
  const before = rates.get(each.id) || { points: [] };
  const seconds = (now - before.at) / 1000;
  if (before.at !== undefined && seconds > 0.5) {
    before.points.push(Math.max(0, each.counts.delivered - before.delivered) / seconds);
    before.points.splice(0, before.points.length - POINTS);
  }
  if (before.at === undefined || seconds > 0.5) {
    before.at = now;
    before.delivered = each.counts.delivered;
  }
  rates.set(each.id, before);
  const recent = before.points.slice(-3);
  return recent.length ? recent.reduce((sum, point) => sum + point, 0) / recent.length : null;
}

function line(points) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("class", "rate");
  svg.setAttribute("viewBox", "0 0 120 26");
  svg.setAttribute("aria-hidden", "true");
  const most = Math.max(1, ...points);
  const places = points.map((point, number) =>
    `${(120 - (points.length - 1 - number) * (120 / (POINTS - 1))).toFixed(1)},${(24 - (point / most) * 22).toFixed(1)}`);
  const drawn = document.createElementNS(space, "polyline");
  drawn.setAttribute("points", places.join(" "));
  drawn.setAttribute("fill", "none");
  drawn.setAttribute("stroke", "currentColor");
  drawn.setAttribute("stroke-width", "1.5");
  svg.append(drawn);
  return svg;
}

// One list of states for all of Dovecote: dovecote/process/states.py and docs/states.md.
const COLOURS = {
  working: "good", idle: "good", standby: "good",
  starting: "warn", behind: "warn", paused: "warn", draining: "warn",
  failing: "bad", stalled: "bad",
  unknown: "off",
};

function condition(each) {
  const { state } = each.health;
  return [state, COLOURS[state] ?? "off"];
}

const since = ({ health }) => (health.since ? `, since ${clock(new Date(health.since))}` : "");

function cell(content, className) {
  const element = make("td", undefined, className);
  element.append(...[content].flat().map((each) => each ?? ""));
  return element;
}

function success({ delivered, failed }) {
  const attempts = delivered + failed;
  return attempts ? `${((100 * delivered) / attempts).toFixed(attempts > delivered ? 1 : 0)} %` : "–";
}

function row(each) {
  const [text, className] = condition(each);
  const perSecond = rate(each);
  const element = make("tr", undefined, each.id === chosen ? "chosen" : "");
  element.dataset.id = each.id;
  const name = make("button", each.id, "name");
  name.type = "button";
  const chip = make("span", text, `chip ${className}`);
  chip.title = each.health.reason + since(each);
  const go = each.status.state === "active"
    ? button("Pause", () => ask("POST", at(each.id, "/pause")))
    : button("Resume", () => ask("POST", at(each.id, "/resume")));
  element.append(
    cell([name, make("div", String(each.endpoint?.url ?? "?"), "sub")]),
    cell(chip),
    cell(perSecond === null ? "–" : `${perSecond < 10 ? perSecond.toFixed(1) : plain(Math.round(perSecond))}/s`, "number"),
    cell(line(rates.get(each.id).points)),
    cell(plain(each.delivery.lag), "number"),
    cell(success(each.counts), "number"),
    cell(milliseconds(each.delivery.p50_ms), "number"),
    cell(milliseconds(each.delivery.p99_ms), "number"),
    cell(plain(each.counts.dead), "number"),
    cell(go, "actions"),
  );
  element.addEventListener("click", () => choose(each.id));
  return element;
}

function tile(label, value, unit) {
  const element = make("div", undefined, "tile");
  const number = make("strong", value);
  element.append(make("span", label), number);
  if (unit) element.append(make("em", unit));
  return element;
}

function tiles(all) {
  const sum = (pick) => all.reduce((total, each) => total + (pick(each) || 0), 0);
  const attempts = sum((each) => each.counts.delivered + each.counts.failed);
  const perSecond = sum((each) => rates.get(each.id)?.points.at(-1));
  find("tiles").replaceChildren(
    tile("Well", plain(all.filter((each) => condition(each)[1] === "good").length), `of ${all.length}`),
    tile("Rate", perSecond < 10 ? perSecond.toFixed(1) : plain(Math.round(perSecond)), "per second"),
    tile("In flight", plain(sum((each) => each.delivery.in_flight)), "requests"),
    tile("Lag", plain(sum((each) => each.delivery.lag)), "records"),
    tile("Success", attempts ? ((100 * sum((each) => each.counts.delivered)) / attempts).toFixed(1) : "–", attempts ? "%" : ""),
    tile("Dead letters", plain(sum((each) => each.counts.dead)), "ever"),
  );
}

function nothing(columns, text) {
  const element = make("tr");
  const only = cell(text, "empty");
  only.colSpan = columns;
  element.append(only);
  return element;
}

function attempt(each) {
  const element = make("tr");
  const className = { delivered: "good", retry: "warn", limited: "warn", dead: "bad", disabled: "bad" }[each.outcome];
  const place = `${each.topic}/${each.partition}/${each.offset}`;
  element.append(
    cell([clock(new Date(each.at * 1000)), make("div", each.number > 1 ? `attempt ${each.number}` : "", "sub")]),
    cell([make("span", each.status ?? "no answer", `chip ${className}`), make("div", each.outcome, "sub")]),
    cell(milliseconds(each.seconds * 1000), "number"),
    cell([make("div", each.event_id, "mono"), make("div", each.key === null ? place : `${place} · key ${each.key}`, "sub")]),
    cell(each.detail, "said"),
  );
  return element;
}

function letter(each, id) {
  const element = make("tr");
  element.append(
    cell([clock(new Date(each.died_at)), make("div", each.attempts === 1 ? "1 attempt" : `${each.attempts} attempts`, "sub")]),
    cell([
      make("div", each.id, "mono"),
      make("div", each.key === null ? each.origin : `${each.origin} · key ${each.key}`, "sub"),
      make("div", each.reason, "said"),
    ]),
    cell([
      button("Requeue", () => resolve(id, "requeue", { ids: [each.id] })),
      button("Drop", () => resolve(id, "drop", { ids: [each.id] })),
    ], "actions"),
  );
  return element;
}

const resolve = async (id, action, which) => {
  await ask("POST", at(id, `/dead/${action}`), which);
  await lookAtDead();
};

async function lookAtAttempts(all) {
  const each = all.find((one) => one.id === chosen);
  find("detail").hidden = !each;
  if (!each) return;
  find("detail-title").textContent = each.id;
  const isWell = condition(each)[1] === "good";
  find("trouble").textContent = `${each.health.state}: ${each.health.reason}${since(each)}`;
  find("trouble").hidden = isWell;
  const attempts = await ask("GET", at(each.id, "/attempts"));
  find("attempts").tBodies[0].replaceChildren(
    ...(attempts.length ? attempts.map(attempt) : [nothing(5, "Nothing was sent yet.")]));
}

async function lookAtDead() {
  const id = chosen;
  if (id === null) return;
  const body = find("dead").tBodies[0];
  try {
    const { total, letters } = await ask("GET", at(id, "/dead"));
    if (id !== chosen) return;
    find("dead-title").textContent = total ? `Dead letters (${plain(total)})` : "Dead letters";
    find("requeue-all").hidden = !total;
    body.replaceChildren(...(total ? letters.map((each) => letter(each, id)) : [nothing(3, "There are none.")]));
  } catch (error) {
    body.replaceChildren(nothing(3, error.message));
  }
}

function choose(id) {
  const changed = chosen !== id;
  chosen = id;
  if (changed) {
    find("dead").tBodies[0].replaceChildren(nothing(3, "Asking Kafka…"));
    find("dead-title").textContent = "Dead letters";
    find("requeue-all").hidden = true;
    lookAtDead();
  }
  look();
}

async function look() {
  try {
    const all = await ask("GET", "/subscriptions");
    const focused = document.activeElement?.closest?.("#subscriptions tr")?.dataset.id;
    const kind = document.activeElement?.className;
    find("subscriptions").tBodies[0].replaceChildren(...all.map(row));
    if (focused) restore(focused, kind);
    find("none").hidden = all.length > 0;
    tiles(all);
    await lookAtAttempts(all);
    stand(`as of ${clock(new Date())}`, "good");
  } catch (error) {
    stand(error.message, "bad");
  }
}

// The rows are made anew: who works with the keyboard stays where they were.
function restore(id, kind) {
  const kept = [...find("subscriptions").tBodies[0].rows].find((each) => each.dataset.id === id);
  kept?.querySelector(kind === "name" ? "button.name" : ".actions button")?.focus();
}

async function follow() {
  if (!document.hidden) await look();
  setTimeout(follow, EVERY);
}

find("token").value = sessionStorage.getItem("token") || "";
find("token").addEventListener("input", () => sessionStorage.setItem("token", find("token").value));
find("access").addEventListener("submit", (event) => {
  event.preventDefault();
  look();
});
find("close").addEventListener("click", () => choose(null));
const all = button("Requeue all", () => resolve(chosen, "requeue", { all: true }));
all.id = "requeue-all";
find("requeue-all").replaceWith(all);
follow();

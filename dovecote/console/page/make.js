// Elements, and how values are said. All text goes through textContent: whatever a record or a
// stranger's endpoint says is shown, and never becomes part of the page.
const SPACE = "http://www.w3.org/2000/svg";

export const by = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function draw(tag, properties = {}, ...children) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Write only what changed: the browser then lays out nothing anew, and screen readers stay quiet.
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function set(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

export const unknown = (value) => value === null || value === undefined;

export function plain(number) {
  return unknown(number) ? "–" : Math.round(number).toLocaleString("en");
}

export function rate(number) {
  if (unknown(number)) return "–";
  if (number > 0 && number < 10) return `${number.toFixed(1)}/s`;
  if (number >= 100000) return `${plain(number / 1000)} k/s`;
  return `${plain(number)}/s`;
}

export function span(seconds) {
  if (unknown(seconds)) return "–";
  const whole = Math.max(0, seconds);
  if (whole < 10 && whole % 1) return `${whole.toFixed(1)} s`;
  if (whole < 120) return `${Math.round(whole)} s`;
  if (whole < 7200) return `${Math.round(whole / 60)} min`;
  if (whole < 172800) return `${Math.round(whole / 3600)} h`;
  return `${plain(whole / 86400)} days`;
}

export function lag(value) {
  if (unknown(value) || (unknown(value.events) && unknown(value.seconds))) return "–";
  const parts = [];
  if (!unknown(value.events)) parts.push(`${plain(value.events)} ${value.events === 1 ? "event" : "events"}`);
  if (!unknown(value.seconds)) parts.push(span(value.seconds));
  return parts.join(" · ");
}

const two = (number) => String(number).padStart(2, "0");

export function clock(time) {
  const at = new Date(time);
  if (unknown(time) || Number.isNaN(at.getTime())) return "–";
  const hours = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return at.toDateString() === new Date().toDateString() ? hours : `${day} ${hours}`;
}

export function ago(since, now) {
  const seconds = (new Date(now) - new Date(since)) / 1000;
  return unknown(since) || Number.isNaN(seconds) ? "" : span(Math.max(0, Math.round(seconds)));
}

export const many = (number, one, more = `${one}s`) => `${plain(number)} ${number === 1 ? one : more}`;

export const note = (text, kind = "") => make("p", { class: `note ${kind}`, text });

// A sentence with commands between backticks, which are shown as code. The element is written anew only when it changes.
export function prose(element, text) {
  if (element.dataset.text === text) return element;
  element.dataset.text = text;
  element.replaceChildren(...text.split("`").map((piece, number) => (number % 2 ? make("code", { text: piece }) : piece)));
  return element;
}

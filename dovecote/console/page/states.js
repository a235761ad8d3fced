// What each state looks like: a word, a shape and a tone. The shape and the word say all; colour only helps.
import { draw, make, put, set } from "./make.js";

const SHAPES = {
  working: "M8 1a7 7 0 1 1 0 14A7 7 0 0 1 8 1z",
  idle: "M8 1a7 7 0 1 1 0 14A7 7 0 0 1 8 1zm0 3a4 4 0 1 0 0 8 4 4 0 0 0 0-8z",
  standby: "M8 1a7 7 0 1 1 0 14A7 7 0 0 1 8 1zm0 2.5v9a4.5 4.5 0 0 0 0-9z",
  starting: "M2 2h12v2L9 8l5 4v2H2v-2l5-4-5-4z",
  behind: "M8 1l7 13H1z",
  paused: "M3 2h4v12H3zm6 0h4v12H9z",
  draining: "M1 3h14L8 15z",
  failing: "M3.5 1L8 5.5 12.5 1 15 3.500 10.500 8 15 12.500 12.500 15 8 10.500 3.500 15 1 12.500 5.500 8 1 3.500z",
  stalled: "M2 2h12v12H2z",
  unknown: "M5 1h6v2H5zM11 3h3v4h-3zM7 7h4v3H7zM7 12h3v3H7zM2 3h3v3H2z",
};

const TONES = {
  working: "good", idle: "good", standby: "good",
  starting: "warn", behind: "warn", paused: "warn", draining: "warn",
  failing: "bad", stalled: "bad", unknown: "grey",
};

const WORST = ["stalled", "failing", "unknown", "behind", "draining", "paused", "starting", "working", "idle", "standby"];

export const STATES = Object.keys(SHAPES);
export const rank = (state) => { const place = WORST.indexOf(state); return place < 0 ? 2 : place; };
export const tone = (state) => TONES[state] ?? "grey";
export const worst = (states) => states.reduce((bad, each) => (rank(each) < rank(bad) ? each : bad), "standby");

// Of a part that was not heard, no state is said as if it were one of now.
export function said(state, doubtful) {
  const known = SHAPES[state] ? state : "unknown";
  if (!doubtful || known === "unknown") return { word: SHAPES[state] ? state : `unknown: ${state}`, shape: known, tone: tone(known) };
  return { word: `was ${known}`, shape: "unknown", tone: "grey" };
}

export function chip(state, doubtful = false) {
  const path = draw("path", {});
  const element = make("span", { class: "chip" },
    draw("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, path), make("span"));
  recolour(element, state, doubtful);
  return element;
}

export function recolour(element, state, doubtful = false) {
  const { word, shape, tone: shade } = said(state, doubtful);
  set(element, "class", `chip ${shade}`);
  set(element, "data-state", word);
  set(element.querySelector("path"), "d", SHAPES[shape]);
  put(element.lastChild, word);
}

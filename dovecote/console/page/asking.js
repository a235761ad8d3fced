// Ask the server, with the token of this tab.
const KEPT = "dovecote-token";

export const kept = () => sessionStorage.getItem(KEPT) ?? "";

export function keep(token) {
  if (token) sessionStorage.setItem(KEPT, token);
  else sessionStorage.removeItem(KEPT);
}

export class Refused extends Error {
  constructor(status, told) {
    super([told.error || `The console answers ${status}.`, told.todo].filter(Boolean).join(" "));
    this.status = status;
  }
}

export async function ask(path, { method = "GET", body, signal } = {}) {
  const headers = {};
  if (kept()) headers.Authorization = `Bearer ${kept()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const limit = AbortSignal.timeout(60_000);
  const stop = signal ? AbortSignal.any([signal, limit]) : limit;
  let answer;
  try {
    answer = await fetch(path, { method, headers, signal: stop, body: body && JSON.stringify(body) });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Error("The console's server does not answer.");
  }
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    if (answer.status === 401) document.dispatchEvent(new CustomEvent("token-wanted"));
    throw new Refused(answer.status, told);
  }
  return told;
}

export function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

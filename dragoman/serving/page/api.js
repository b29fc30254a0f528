// Asking the server. Addresses are relative, so that a proxy may put the page under a path of its own.

const KEY = "dragoman.key";
let key = "";
try {
  key = sessionStorage.getItem(KEY) ?? "";
} catch {
  // storage may be forbidden: the key is then kept in this page alone
}

// An answer that is none. Status 0 means that nobody answered; seconds is when to come back.
export class Refusal extends Error {
  constructor(status, message, seconds) {
    super(message);
    this.status = status;
    this.seconds = seconds;
  }

  get wantsKey() {
    return this.status === 403 || (this.status === 400 && /API key/.test(this.message));
  }
}

export function useKey(given) {
  key = given.trim();
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // see above
  }
}

export function hasKey() {
  return key !== "";
}

export function get(path, signal) {
  return send(path, { signal });
}

export function ask(path, fields, signal) {
  const headers = { "Content-Type": "application/json" };
  return send(path, { method: "POST", headers, body: JSON.stringify(fields), signal });
}

export function upload(path, fields) {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) body.append(name, value);
  return send(path, { method: "POST", body });
}

export async function fetchFile(path) {
  return (await reach(path, {})).blob();
}

async function send(path, options) {
  if (key) options.headers = { ...options.headers, Authorization: `Bearer ${key}` };
  const answer = await reach(path, options);
  const content = await answer.json().catch(() => {
    if (options.signal?.aborted) throw new DOMException("", "AbortError");
    return {};
  });
  if (answer.ok) return content;
  const seconds = Number(answer.headers.get("Retry-After"));
  throw new Refusal(answer.status, content.error ?? `The server answered ${answer.status}.`, seconds || null);
}

async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The server does not answer.", 3);
  }
}

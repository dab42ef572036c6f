// Requests to the API. The key is in the storage of this tab only, and is sent in a header only.

const ROOT = new URL("../", document.baseURI);
const STORED_KEY = "saggar-api-key";

/** A request that the server refused, or that did not reach it (status 0). */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function hasKey() {
  return sessionStorage.getItem(STORED_KEY) !== null;
}

export function setKey(key) {
  sessionStorage.setItem(STORED_KEY, key);
}

/** Forgets the key, and shows the form for another one with this reason. */
export function signOut(reason = "") {
  sessionStorage.removeItem(STORED_KEY);
  document.dispatchEvent(new CustomEvent("signed-out", { detail: reason }));
}

/** Sends a request and returns the successful response. Throws an ApiError otherwise. */
export async function send(method, path, { body, headers = {}, signal } = {}) {
  const key = sessionStorage.getItem(STORED_KEY);
  const options = { method, signal, headers: { ...headers }, credentials: "omit", cache: "no-store" };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let response;
  try {
    // A key with other characters cannot be in a header.
    if (!/^[\x21-\x7e]+$/.test(key ?? "")) throw new ApiError(401, "Invalid API key");
    options.headers.Authorization = `Bearer ${key}`;
    response = await fetch(new URL(path, ROOT), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (error instanceof ApiError) return refuse(key, error);
    throw new ApiError(0, "The server cannot be reached");
  }
  if (response.ok) return response;
  return refuse(key, new ApiError(response.status, await errorText(response)));
}

function refuse(key, error) {
  // An answer to an earlier key does not end the use of a later one.
  if (error.status === 401 && key === sessionStorage.getItem(STORED_KEY)) signOut(error.message);
  throw error;
}

async function errorText(response) {
  const body = await response.json().catch(() => ({}));
  return String(body.message ?? body.error ?? `Status ${response.status}`);
}

/** Gets an object. Query parameters that are empty are left out. */
export async function get(path, query = {}, signal) {
  const used = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const suffix = used.length ? `?${new URLSearchParams(used)}` : "";
  return (await send("GET", path + suffix, { signal })).json();
}

export async function getText(path) {
  return (await send("GET", path)).text();
}

export async function post(path, body = {}) {
  return (await send("POST", path, { body })).json();
}

export async function remove(path) {
  return (await send("DELETE", path)).json();
}

/** The path of a session, or of a part of it. */
export function sessionPath(id, part = "") {
  return `api/sessions/${encodeURIComponent(id)}${part && `/${part}`}`;
}

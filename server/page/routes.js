// Addresses of views. They are in the fragment, so that the server never receives them, and never contain the key.

const PARTS = ["conversation", "changes", "network", "quarantine", "logs"];

/** The link to a part of a session. */
export function sessionLink(id, part = "conversation") {
  return `#/sessions/${encodeURIComponent(id)}${part === "conversation" ? "" : `/${part}`}`;
}

/** The list of sessions with a status, or of all sessions. */
export function sessionsLink(status = "") {
  return status ? `#/sessions?${new URLSearchParams({ status })}` : "#/sessions";
}

/** Parses a fragment: `{ id, part }` for a session, and otherwise `{ status }` for the list. */
export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?");
  const [, first, id, part = PARTS[0]] = path.split("/");
  if (first === "sessions" && id && PARTS.includes(part)) return { id: decode(id), part };
  return { status: new URLSearchParams(query).get("status") ?? "" };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

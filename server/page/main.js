// The page: the form for the API key, and the view of the address. An address never contains the key.

import { get, hasKey, setKey, signOut } from "./api.js";
import { alertBox, element, textElement } from "./dom.js";
import { parseRoute } from "./routes.js";
import { SessionView } from "./session.js";
import { SessionsView } from "./sessions.js";

const main = document.getElementById("main");
const navigation = document.getElementById("navigation");
let view = null;
let viewKey = "";
let visits = 0;

/** Returns the view of an address, a key that is the same for all addresses of that view, and the part to show. */
function findView(hash) {
  const { id, part, status } = parseRoute(hash);
  return id === undefined
    ? { key: `sessions ${status}`, create: () => new SessionsView(status) }
    : { key: `session ${id}`, create: () => new SessionView(id), part };
}

async function navigate() {
  if (!hasKey()) return signIn("");
  navigation.hidden = false;
  const visit = ++visits;
  const { key, create, part } = findView(location.hash);
  const isNew = key !== viewKey;
  if (isNew) {
    view?.close();
    view = create();
    viewKey = key;
    main.replaceChildren(view.element);
  }
  try {
    const title = await view.show(part);
    if (visit !== visits) return;
    document.title = `${title} · saggar`;
    view.heading.focus({ preventScroll: true });
    if (isNew && key.startsWith("sessions")) window.scrollTo(0, 0);
  } catch (error) {
    if (visit !== visits || error.status === 401) return;
    view.close();
    viewKey = "";
    main.replaceChildren(element("h1", {}, "Not shown"), alertBox(error.message),
      element("p", {}, element("a", { href: "#/sessions" }, "All sessions")));
  }
}

function signIn(reason) {
  view?.close();
  view = null;
  viewKey = "";
  visits += 1;
  navigation.hidden = true;
  document.title = "Sign in · saggar";
  const problem = element("div", {}, ...(reason ? [alertBox(reason)] : []));
  const input = element("input", {
    id: "key", type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "key-hint",
  });
  const form = element("form", {
    class: "sign-in",
    onsubmit: async (event) => {
      event.preventDefault();
      setKey(input.value.trim());
      try {
        await get("api/sessions", { limit: 1 });
        await navigate();
      } catch (error) {
        // A key that is refused has brought this form back already.
        if (error.status === 401) return;
        problem.replaceChildren(alertBox(error.message));
      }
    },
  }, element("h1", {}, "Sign in"), problem,
    element("label", { for: "key" }, "API key"), input,
    textElement("p", { id: "key-hint", class: "label" },
      "The key stays in this browser tab until you close it or sign out."),
    element("button", { type: "submit", class: "primary" }, "Sign in"));
  main.replaceChildren(form);
  input.focus();
}

document.addEventListener("signed-out", (event) => signIn(event.detail));
document.getElementById("sign-out").addEventListener("click", () => signOut());
// The address of the skip link would be that of a view.
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", navigate);
navigate();

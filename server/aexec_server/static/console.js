// The console: the pages and what leads to them. The server's events say what there is; `#live` and `#session/HANDLE/TAB`
// say what is shown, so that the browser's history and links work.

import { byId, element, keyed, setText } from "./elements.js";
import { Following } from "./event_stream.js";
import { LivePage } from "./live_page.js";
import { RunsTable } from "./runs_table.js";
import { call, currentToken, errorText, Refused, sessionPath, setToken } from "./server.js";
import { SessionPage, TABS } from "./session_page.js";
import { UploadForm } from "./upload_form.js";

const HANDLES = "aexec-handles";

const state = {
  opened: JSON.parse(sessionStorage.getItem(HANDLES) ?? "[]"), // handles that the person gave
  listed: [], // sessions that the server lists
  others: new Map(), // handle → document, of the opened ones
  page: null, // of the session that is shown
  awaited: null, // a model that was uploaded, and is shown once it is listed
  following: null,
  asked: 0, // how often a page was asked for: an answer that comes after the next one is dropped
};

const announce = (text) => setText(byId("announcements"), text);
const addressOf = (handle, tab = "run") => `#session/${encodeURIComponent(handle)}/${tab}`;
const runs = new RunsTable({ announce, open: (handle, run) => showSession(handle, "run").then(() => state.page?.open(run)) });
const live = new LivePage(runs);
const upload = new UploadForm((handle, isModel) => {
  if (!isModel) return openHandle(handle);
  state.awaited = handle;
  return showAwaited();
});

// Following the server

function setConnection(text, kind) {
  const badge = byId("connection");
  setText(badge, text);
  badge.className = `badge ${kind}`;
}

function connected(what) {
  if (what === "open") setConnection("connected", "good");
  else if (!(what instanceof Refused)) setConnection("no answer", "bad");
  else setConnection(what.status === 401 || what.status === 403 ? "needs a token" : what.message.slice(0, 60), "bad");
}

function follow() {
  state.following?.stop();
  state.following = new Following("/v1/events", onEvent, connected);
}

async function onEvent(kind, what) {
  if (kind === "sessions") {
    state.listed = what.sessions;
    live.allow(what.sees_status);
    upload.allow(what.may_change_models);
    await lookAtOpened();
    showList();
    showAwaited();
    await reopen();
    await runs.look(sessions(), state.page?.handle);
  } else if (kind === "status") {
    setText(byId("version"), what.version);
    setConnection(what.ready ? "ready" : "not ready", what.ready ? "good" : "bad");
    live.showStatus(what);
  } else if (kind === "point") live.addPoint(what);
}

// Sessions

const sessions = () => [...state.listed, ...state.others.values()];

/** Reads the documents of the sessions that the person has opened, and forgets those that are gone. */
async function lookAtOpened() {
  const listed = new Set(state.listed.map((session) => session.session_handle));
  for (const handle of [...state.opened]) {
    if (listed.has(handle)) state.others.delete(handle);
    else if (!state.others.has(handle)) await readOpened(handle);
  }
}

async function readOpened(handle) {
  try {
    state.others.set(handle, await call("GET", sessionPath(handle)));
  } catch (error) {
    if (error instanceof Refused && error.status === 404) forget(handle, error.message);
  }
}

function remember(handle) {
  if (!state.opened.includes(handle)) state.opened.push(handle);
  sessionStorage.setItem(HANDLES, JSON.stringify(state.opened));
}

function forget(handle, why) {
  state.opened = state.opened.filter((other) => other !== handle);
  state.others.delete(handle);
  sessionStorage.setItem(HANDLES, JSON.stringify(state.opened));
  announce(why);
}

async function openHandle(handle) {
  remember(handle);
  await lookAtOpened();
  showList();
  location.hash = addressOf(handle);
}

/** Shows a model once it is listed, which may take the processes of a server a moment. */
function showAwaited() {
  if (!state.listed.some((session) => session.session_handle === state.awaited)) return;
  location.hash = addressOf(state.awaited);
  state.awaited = null;
}

/** Shows a session anew that is there again: a model that was reloaded, or whose server has restarted. */
async function reopen() {
  const { page } = state;
  if (page?.isGone && state.listed.some((session) => session.session_handle === page.handle)) await showSession(page.handle, page.tab);
}

function showList() {
  keyed(byId("sessions"), sessions(), (session) => session.session_handle, (session) => element("li", {}, element("a", { href: addressOf(session.session_handle) }, element("span"), element("small"))), (row, session) => {
    const link = row.firstElementChild;
    setText(link.firstElementChild, session.session_handle);
    setText(link.lastElementChild, `${session.nodes} nodes, ${session.runs} runs${session.runs_in_flight ? `, ${session.runs_in_flight} in flight` : ""}`);
    link.setAttribute("aria-current", String(session.session_handle === state.page?.handle));
  });
  byId("no-sessions").hidden = sessions().length > 0;
}

// What is shown

function showLive() {
  state.asked += 1;
  leaveSession();
  byId("live-link").setAttribute("aria-current", "true");
  live.show();
  showList();
}

function leaveSession() {
  state.page?.close();
  state.page = null;
}

/** Shows a tab of a session; resolves once it is there. */
async function showSession(handle, tab) {
  byId("live-link").setAttribute("aria-current", "false");
  state.asked += 1;
  const { asked } = state;
  if (state.page?.handle !== handle || state.page.isGone) {
    try {
      const document = await call("GET", sessionPath(handle));
      if (asked !== state.asked) return;
      leaveSession();
      live.element.hidden = true;
      state.page = new SessionPage(document, {
        runs: (of, list) => runs.show(of, list),
        gone: (why) => {
          forget(handle, why);
          state.page.isGone = true;
          state.page.heading.after(element("p", { class: "error", role: "alert" }, why));
        },
        tab: (name) => (location.hash = addressOf(handle, name)),
      });
      byId("content").prepend(state.page.element);
      state.page.place.append(runs.element);
    } catch (error) {
      announce(errorText(error));
      setText(byId("open-error"), errorText(error));
      return;
    }
  }
  setText(byId("open-error"), "");
  state.page.show(tab);
  const address = addressOf(handle, tab);
  if (location.hash !== address) history.pushState(null, "", address);
  showList();
}

async function route() {
  const [kind, handle, tab] = location.hash.slice(1).split("/");
  if (kind !== "session" || !handle) {
    showLive();
    return;
  }
  const before = state.page?.handle;
  await showSession(decodeURIComponent(handle), tab in TABS ? tab : "run");
  if (before !== undefined && before !== state.page?.handle) state.page?.heading.focus({ preventScroll: true });
}

// Beginning

byId("content").append(live.element);
byId("upload").append(upload.element);
byId("token").value = currentToken();
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value.trim());
  follow();
  route();
});
byId("open-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const handle = byId("handle").value.trim();
  if (!handle) return;
  byId("handle").value = "";
  await openHandle(handle);
});
addEventListener("hashchange", route);
follow();
route();

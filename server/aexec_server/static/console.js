// The console: looks at the server about once in a second, and shows what there is.

import { byId, bytesText, drawn, element, keyed, setText, shapeText } from "./elements.js";
import { GraphView } from "./graph_view.js";
import { timeline } from "./timeline.js";

const POLL_MS = 1000;
const MOST_RUNS = 200; // rows
const MOST_DETAILS = 20; // runs of which it is asked what they wait for
const MOST_TEXT = 20000;
const RATES = 60;

const state = {
  token: sessionStorage.getItem("aexec-token") ?? "",
  opened: JSON.parse(sessionStorage.getItem("aexec-handles") ?? "[]"), // handles that the person gave
  sessions: new Map(), // handle → document
  selected: null,
  document: null, // of the selected session
  signature: null,
  graph: null,
  runs: new Map(), // "session run" → {began, …}
  rates: [],
  last: null, // figures of the last look, and when
  number: 0,
};

// Asking the server

class Refused extends Error {
  constructor(status, body) {
    super(body?.error ?? `The server answered with status ${status}`);
    this.status = status;
    this.code = body?.code;
  }
}

async function call(method, path, body) {
  const headers = { Accept: "application/json; nan=string; int64=string" }; // as JSON.parse can read it
  if (state.token) headers.Authorization = `Bearer ${state.token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await response.text();
  let answer = null;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    answer = null; // no JSON: shown as it came
  }
  if (!response.ok) throw new Refused(response.status, answer);
  return answer ?? text;
}

/** The description of what this server can be asked. */
async function described() {
  state.api ??= await call("GET", "/openapi.json");
  return state.api;
}

const sessionPath = (handle) => `/v1/sessions/${encodeURIComponent(handle)}`;
const runPath = (run) => `${sessionPath(run.session)}/runs/${encodeURIComponent(run.run_id)}`;

function announce(text) {
  setText(byId("announcements"), text);
}

// Looking at all of it

function setConnection(text, kind) {
  const badge = byId("connection");
  setText(badge, text);
  badge.className = `badge ${kind}`;
}

async function look() {
  try {
    const [status, list] = await Promise.all([figures(), call("GET", "/v1/sessions")]);
    const found = new Map(list.sessions.map((session) => [session.session_handle, session]));
    for (const handle of state.opened) {
      if (!found.has(handle)) await openedDocument(handle, found);
    }
    state.sessions = found;
    showStatus(status);
    showSessions();
    showErrors(status?.recent_errors ?? []);
    if (state.selected === null && found.size) await select(found.keys().next().value, false);
    await Promise.all([lookAtRuns(), lookAtQueues()]);
    const ready = status === null || status.ready;
    setConnection(ready ? "ready" : "not ready", ready ? "good" : "bad");
  } catch (error) {
    if (!(error instanceof Refused)) setConnection("no answer", "bad");
    else setConnection(error.status === 401 || error.status === 403 ? "needs a token" : error.message.slice(0, 60), "bad");
  }
}

/** How the server is, or null for who may not know. */
async function figures() {
  try {
    return await call("GET", "/v1/status");
  } catch (error) {
    if (error instanceof Refused && error.status === 403) return null;
    throw error;
  }
}

async function openedDocument(handle, found) {
  try {
    found.set(handle, await call("GET", sessionPath(handle)));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status === 404) forget(handle, error.message);
  }
}

function forget(handle, why) {
  state.opened = state.opened.filter((other) => other !== handle);
  sessionStorage.setItem("aexec-handles", JSON.stringify(state.opened));
  announce(why);
}

let looking = false;
let again = false;

/** One look at a time; asked for during one, another follows. */
async function lookOnce() {
  if (looking) {
    again = true;
    return;
  }
  looking = true;
  do {
    again = false;
    await look();
  } while (again);
  looking = false;
}

function lookForEver() {
  const next = () => setTimeout(lookForEver, POLL_MS);
  if (document.hidden) next();
  else lookOnce().then(next);
}

// Figures

function showStatus(status) {
  byId("overview").hidden = byId("latest-errors").hidden = status === null;
  if (status === null) return;
  setText(byId("version"), status.version);
  const now = performance.now();
  if (state.last !== null && now - state.last.when > 200) {
    const rate = (1000 * Math.max(0, status.runs - state.last.runs)) / (now - state.last.when);
    state.rates = [...state.rates, rate].slice(-RATES);
  }
  if (state.last === null || now - state.last.when > 200) state.last = { when: now, runs: status.runs };
  const limit = status.tensor_bytes_limit;
  const rate = state.rates.at(-1);
  const tiles = [
    { name: "Runs in flight", text: status.runs_in_flight },
    { name: "Runs per second", text: rate === undefined ? "–" : rate < 10 ? rate.toFixed(1) : Math.round(rate), rates: state.rates },
    { name: "Runs", text: status.runs },
    { name: "Errors", text: status.errors },
    { name: "Sessions", text: status.sessions },
    { name: limit === null ? "Tensors" : `Tensors of ${bytesText(limit)}`, text: bytesText(status.tensor_bytes), share: limit ? status.tensor_bytes / limit : null },
    { name: status.host_count ? `Running, ${status.host_count} processes` : "Running", text: durationText(status.uptime_s) },
  ];
  keyed(byId("tiles"), tiles.map((tile, i) => ({ ...tile, i })), (tile) => tile.i, makeTile, updateTile);
}

function durationText(seconds) {
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h`;
}

function makeTile(tile) {
  const made = element("div", { class: "tile" }, element("dt"), element("dd"));
  if (tile.rates) made.append(drawn("svg", { viewBox: `0 0 ${RATES} 20`, preserveAspectRatio: "none", "aria-hidden": "true" }, drawn("polyline")));
  if ("share" in tile && tile.share !== null) made.append(element("meter", { min: 0, max: 1, high: 0.9, "aria-label": "Share of the memory that tensors may take" }));
  return made;
}

function updateTile(made, tile) {
  setText(made.querySelector("dt"), tile.name);
  setText(made.querySelector("dd"), tile.text);
  const line = made.querySelector("polyline");
  if (line) {
    const most = Math.max(1, ...tile.rates);
    line.setAttribute("points", tile.rates.map((rate, i) => `${i + RATES - tile.rates.length},${19 - (18 * rate) / most}`).join(" "));
  }
  const meter = made.querySelector("meter");
  if (meter) meter.value = tile.share;
}

function showErrors(errors) {
  byId("no-errors").hidden = errors.length > 0;
  const latest = errors.slice(-12).reverse();
  const rows = latest.map((error, i) => ({ ...error, key: `${error.time} ${error.path} ${i}` }));
  keyed(byId("errors"), rows, (error) => error.key, (error) => {
    const when = new Date(1000 * error.time);
    return element(
      "tr", {},
      element("td", {}, element("time", { datetime: when.toISOString() }, when.toLocaleTimeString())),
      element("td", { class: "mono", "data-label": "Request" }, `${error.method} ${error.path}`),
      element("td", { "data-label": "Code" }, `${error.status} ${error.code}`),
      element("td", { class: "mono", "data-label": "Node" }, error.node === null ? "" : error.op === null ? error.node : `${error.node} (${error.op})`),
    );
  }, () => {});
}

// Sessions

function showSessions() {
  keyed(byId("sessions"), [...state.sessions.values()], (session) => session.session_handle, (session) => {
    const handle = session.session_handle;
    return element("li", {}, element("button", { type: "button", onclick: () => select(handle, true) }, element("span"), element("small")));
  }, (row, session) => {
    const button = row.firstElementChild;
    setText(button.firstElementChild, session.session_handle);
    setText(button.lastElementChild, `${session.nodes} nodes, ${session.runs} runs${session.runs_in_flight ? `, ${session.runs_in_flight} in flight` : ""}`);
    button.setAttribute("aria-current", String(session.session_handle === state.selected));
  });
}

async function select(handle, byPerson) {
  try {
    const answer = await call("GET", sessionPath(handle));
    state.selected = handle;
    state.document = answer;
    showSession();
    showSessions();
    if (byPerson) byId("session-heading").focus();
  } catch (error) {
    announce(error.message);
  }
}

/** Signatures by name; of a graph without any, the one that it has all the same, under "". */
function signatures() {
  const { signatures: named, inputs, outputs } = state.document;
  const names = Object.keys(named);
  if (names.length || inputs === undefined) return named;
  return { "": { inputs, outputs } };
}

function showSession() {
  const session = state.document;
  byId("session").hidden = false;
  setText(byId("session-heading"), session.session_handle);
  setText(byId("session-facts"), `${session.nodes} nodes, version ${session.graph_version}, ${session.plans} plans` + (session.ttl_s === null ? "" : `, closed after ${session.ttl_s} s without use`));
  const names = Object.keys(signatures());
  byId("signature").replaceChildren(...names.map((name) => element("option", { value: name }, name || "all placeholders")));
  if (names.includes("serving_default")) byId("signature").value = "serving_default";
  byId("run").disabled = names.length === 0;
  showSignature();
  for (const id of ["answer-part", "timeline-part", "queues-part"]) byId(id).hidden = true;
  setText(byId("run-error"), names.length ? "" : "It has no signature and no placeholder: it is run by the names of its tensors.");
  closeGraph();
}

function showSignature() {
  const signature = signatures()[byId("signature").value];
  byId("inputs").replaceChildren(...(signature?.inputs ?? []).map((input, i) => {
    const id = `input-${i}`;
    const about = `${input.datatype ?? "any type"}, ${shapeText(input.shape)}`;
    return element(
      "div", { class: "field" },
      element("label", { for: id }, input.name, " ", element("small", {}, about)),
      Object.assign(element("textarea", { id, rows: 1, spellcheck: "false", "data-name": input.name, "data-type": input.datatype ?? "" }), { value: exampleText(input) }),
    );
  }));
}

/** Zeros in the shape of an input, as far as it fits a line or two. */
function exampleText(input) {
  const one = input.datatype === "BYTES" ? "text" : input.datatype === "BOOL" ? false : 0;
  const sizes = (input.shape ?? []).map((size) => (size < 0 ? 1 : size));
  if (sizes.reduce((a, b) => a * b, 1) > 64) return "";
  const fill = (axis) => (axis === sizes.length ? one : Array.from({ length: sizes[axis] }, () => fill(axis + 1)));
  return JSON.stringify(fill(0));
}

// Running

function readInputs() {
  const inputs = {};
  for (const field of byId("inputs").querySelectorAll("textarea")) {
    field.removeAttribute("aria-invalid");
    try {
      inputs[field.dataset.name] = JSON.parse(field.value);
    } catch (error) {
      if (field.dataset.type === "BYTES") inputs[field.dataset.name] = field.value;
      else {
        field.setAttribute("aria-invalid", "true");
        field.focus();
        throw new Error(`${field.dataset.name} is no JSON value: ${error.message}`);
      }
    }
  }
  return inputs;
}

async function run(event) {
  event.preventDefault();
  setText(byId("run-error"), "");
  const session = state.selected;
  state.number += 1;
  const id = `console-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}-${state.number}`;
  try {
    const body = { run_id: id, inputs: readInputs() };
    if (byId("signature").value) body.signature = byId("signature").value;
    if (byId("traced").checked) body.options = { trace_level: "FULL_TRACE" };
    const asked = call("POST", `${sessionPath(session)}:run`, body);
    setTimeout(lookOnce, 50);
    const answer = await asked;
    if (session === state.selected) showAnswer(answer);
  } catch (error) {
    if (session === state.selected) setText(byId("run-error"), error.code ? `${id}: ${error.code}: ${error.message}` : error.message);
  }
  lookOnce();
}

function showAnswer(answer) {
  const stats = answer.metadata?.step_stats;
  const shown = typeof answer === "string" ? answer : answerText(answer);
  setText(byId("answer"), shown.length > MOST_TEXT ? `${shown.slice(0, MOST_TEXT)}\n… ${shown.length - MOST_TEXT} characters more` : shown);
  byId("answer-part").hidden = false;
  byId("timeline-part").hidden = !stats;
  if (stats) byId("timeline").replaceChildren(timeline(stats));
  announce("There is an answer.");
}

function answerText(answer) {
  return Object.entries(answer.outputs)
    .map(([name, value]) => `${name}: ${answer.dtypes[name]}, ${shapeText(answer.shapes[name])}\n${JSON.stringify(value)}`)
    .join("\n\n");
}

// Runs in flight

async function lookAtRuns() {
  const busy = [...state.sessions.values()].filter((session) => session.runs_in_flight > 0);
  const lists = await Promise.all(busy.map(async (session) => {
    try {
      const { runs } = await call("GET", `${sessionPath(session.session_handle)}/runs`);
      return runs.map((run) => ({ ...run, session: session.session_handle }));
    } catch (error) {
      if (error instanceof Refused) return [];
      throw error;
    }
  }));
  const runs = lists.flat().slice(0, MOST_RUNS);
  await Promise.all(runs.slice(0, MOST_DETAILS).map(async (run) => {
    try {
      run.waits_for = (await call("GET", runPath(run))).waits_for;
    } catch (error) {
      if (!(error instanceof Refused)) throw error; // it has ended meanwhile
    }
  }));
  showRuns(runs);
}

const runKey = (run) => `${run.session} ${run.run_id}`;

function showRuns(runs) {
  const now = performance.now();
  const before = state.runs;
  state.runs = new Map(runs.map((run) => [runKey(run), { ...run, began: now - 1000 * run.seconds }]));
  const ended = [...before.keys()].filter((key) => !state.runs.has(key));
  const begun = [...state.runs.keys()].filter((key) => !before.has(key));
  if (begun.length) announce(begun.length === 1 ? `Run ${state.runs.get(begun[0]).run_id} has begun.` : `${begun.length} runs have begun.`);
  else if (ended.length) announce(ended.length === 1 ? `Run ${before.get(ended[0]).run_id} has ended.` : `${ended.length} runs have ended.`);
  byId("no-runs").hidden = runs.length > 0;
  keepFocus(byId("runs"), () => keyed(byId("runs"), runs, runKey, makeRun, updateRun));
  showSeconds();
}

/** Where the row with the focus goes away, the heading takes it, so that the keyboard is not at the top again. */
function keepFocus(parent, change) {
  const had = parent.contains(document.activeElement);
  change();
  if (had && !parent.contains(document.activeElement)) byId("content").focus({ preventScroll: true });
}

function makeRun(run) {
  const cancelled = async (event) => {
    event.target.disabled = true;
    try {
      await call("POST", `${runPath(run)}:cancel`, { reason: "cancelled in the console" });
    } catch (error) {
      announce(error.message);
    }
    lookOnce();
  };
  return element(
    "tr", {},
    element("th", { scope: "row", class: "mono" }, run.run_id), element("td", { class: "mono", "data-label": "Session" }, run.session),
    element("td", { "data-label": "State" }), element("td", { class: "number", "data-label": "Seconds" }, element("span", { class: "seconds" })),
    element("td", { class: "waits" }),
    element("td", {}, element("button", { type: "button", class: "cancel", "aria-label": `Cancel run ${run.run_id}`, onclick: cancelled }, "Cancel")),
  );
}

function updateRun(row, run) {
  setText(row.children[2], run.cancelled ? "being cancelled" : run.state);
  setText(row.children[4], run.waits_for?.slice(0, 4).join("\n") ?? "");
}

function showSeconds() {
  const now = performance.now();
  for (const row of byId("runs").children) {
    const run = state.runs.get(row.dataset.key);
    if (run) setText(row.querySelector(".seconds"), ((now - run.began) / 1000).toFixed(1));
  }
}

// Queues

async function lookAtQueues() {
  const handle = state.selected;
  if (handle === null || !(await described()).paths["/v1/sessions/{session}/queues"]) return;
  try {
    const { queues } = await call("GET", `${sessionPath(handle)}/queues`);
    if (handle === state.selected) showQueues(queues);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    byId("queues-part").hidden = true;
  }
}

function showQueues(queues) {
  byId("queues-part").hidden = queues.length === 0;
  keyed(byId("queues"), queues, (queue) => queue.name, (queue) =>
    element("tr", {}, element("th", { scope: "row", class: "mono" }, queue.name), element("td", { "data-label": "Kind" }, queue.kind),
      element("td", {}, element("meter", { min: 0, "aria-label": `How full ${queue.name} is` })),
      ...["Elements", "Producers waiting", "Consumers waiting"].map((name) => element("td", { class: "number", "data-label": name })), element("td", { "data-label": "State" })),
  (row, queue) => {
    const bounded = queue.capacity > 0 && queue.capacity < 2 ** 31 - 1;
    const meter = row.querySelector("meter");
    meter.max = bounded ? queue.capacity : Math.max(1, queue.size, queue.peak ?? 0);
    meter.value = queue.size;
    setText(row.children[3], bounded ? `${queue.size} of ${queue.capacity}` : queue.size);
    setText(row.children[4], queue.waiting_producers);
    setText(row.children[5], queue.waiting_consumers);
    setText(row.children[6], queue.closed ? "closed" : "open");
  });
}

// The graph

function closeGraph() {
  state.graph?.close();
  state.graph = null;
  byId("graph").hidden = true;
  setText(byId("show-graph"), "Show the graph");
  byId("function").hidden = document.querySelector("label[for=function]").hidden = true;
  byId("function").replaceChildren();
}

async function showGraph() {
  if (state.graph !== null) {
    closeGraph();
    return;
  }
  await loadGraph(null);
}

async function loadGraph(ofFunction) {
  const session = state.selected;
  const query = ofFunction ? `?function=${encodeURIComponent(ofFunction)}` : "";
  try {
    const graph = await call("GET", `${sessionPath(session)}/nodes${query}`);
    if (session !== state.selected) return;
    state.graph?.close();
    const more = (name) => call("GET", `${sessionPath(session)}/nodes?node=${encodeURIComponent(name)}${query.replace("?", "&")}`);
    byId("graph").hidden = false;
    state.graph = new GraphView(byId("graph"), graph, more);
    setText(byId("show-graph"), "Hide the graph");
    const choice = byId("function");
    if (graph.functions.length && !choice.options.length) {
      choice.replaceChildren(element("option", { value: "" }, "the graph itself"), ...graph.functions.map((name) => element("option", { value: name }, name)));
      choice.hidden = document.querySelector("label[for=function]").hidden = false;
    }
  } catch (error) {
    setText(byId("run-error"), error.message);
  }
}

// Beginning

byId("run-form").addEventListener("submit", run);
byId("signature").addEventListener("change", showSignature);
byId("show-graph").addEventListener("click", showGraph);
byId("function").addEventListener("change", () => loadGraph(byId("function").value || null));
byId("token").value = state.token;
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  state.token = byId("token").value.trim();
  sessionStorage.setItem("aexec-token", state.token);
  lookOnce();
});
byId("open-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const handle = byId("handle").value.trim();
  if (!handle) return;
  if (!state.opened.includes(handle)) state.opened.push(handle);
  sessionStorage.setItem("aexec-handles", JSON.stringify(state.opened));
  byId("handle").value = "";
  await lookOnce();
  await select(handle, true);
});
document.addEventListener("visibilitychange", () => document.hidden || lookOnce());
setInterval(showSeconds, 100);
lookForEver();

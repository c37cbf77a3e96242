// One session: its runs, its graph, its queues and its partial runs, each on a tab, followed by its events.

import { Chosen } from "./chosen.js";
import { element, setText } from "./elements.js";
import { Following } from "./event_stream.js";
import { PartialPanel } from "./partial_panel.js";
import { QueuesPanel } from "./queues_panel.js";
import { RunForm } from "./run_form.js";
import { newRunId, RunView } from "./run_view.js";
import { call, errorText, sessionPath } from "./server.js";
import { answerText } from "./values.js";

export const TABS = { run: "Run", graph: "Graph", queues: "Queues", partial: "Partial runs" };
const MOST_RUNS = 20; // that this page keeps
const LAYOUT = "/console/layout_worker.js";
const policy = globalThis.trustedTypes?.createPolicy("aexec", {
  createScriptURL: (url) => {
    if (url !== LAYOUT) throw new TypeError(`no script of this page: ${url}`);
    return url;
  },
});
const newWorker = () => new Worker(policy ? policy.createScriptURL(LAYOUT) : LAYOUT, { type: "module" });

export class SessionPage {
  /** `document` describes the session; `on` has runs(list), gone(why) and tab(name). */
  constructor(document, on) {
    Object.assign(this, { document, on });
    this.handle = document.session_handle;
    this.chosen = new Chosen();
    this.runs = []; // of this page, the newest first
    this.shownRun = null;
    this.graph = null;
    this.facts = element("p", { class: "faint" });
    this.form = new RunForm(document, this.chosen, (body) => this.start(body));
    this.list = element("ol", { class: "runs", "aria-label": "Runs of this page" });
    this.stage = element("div");
    this.place = element("div"); // of the table of all runs in flight
    this.queues = new QueuesPanel(this.handle);
    this.partial = new PartialPanel(this.handle, this.chosen);
    this.graphPart = element("div");
    this.graphError = element("p", { class: "error", role: "alert" });
    this.panels = {
      run: [this.form.element, this.list, this.stage, this.place],
      graph: [this._choice(), this.graphError, this.graphPart],
      queues: [this.queues.element],
      partial: [this.partial.element],
    };
    this.element = this._build();
    this._showFacts(document);
    this.following = new Following(`${sessionPath(this.handle)}/events`, (kind, what) => this._event(kind, what));
  }

  close() {
    this.following.stop();
    this.graph?.close();
    for (const view of this.runs) view.close();
    this.element.remove();
  }

  _build() {
    this.heading = element("h2", { id: "session-heading", tabindex: -1 }, this.handle);
    this.tabs = Object.entries(TABS).map(([name, text]) => element("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, "data-tab": name, onclick: () => this.on.tab(name) }, text));
    const tablist = element("div", { class: "tabs", role: "tablist", "aria-label": "Parts of the session", onkeydown: (event) => this._arrow(event) }, ...this.tabs);
    this.parts = Object.entries(this.panels).map(([name, children]) => element("div", { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}` }, ...children));
    return element("section", { "aria-labelledby": "session-heading" }, this.heading, this.facts, tablist, ...this.parts);
  }

  _arrow(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const names = Object.keys(TABS);
    const next = names[(names.indexOf(this.tab) + step + names.length) % names.length];
    this.on.tab(next);
    this.tabs.find((tab) => tab.dataset.tab === next).focus();
  }

  /** Shows a tab. */
  show(name) {
    this.tab = name;
    this.tabs.forEach((tab) => {
      tab.setAttribute("aria-selected", String(tab.dataset.tab === name));
      tab.tabIndex = tab.dataset.tab === name ? 0 : -1;
    });
    for (const part of this.parts) part.hidden = part.id !== `panel-${name}`;
    if (name === "graph" && this.graph === null) this.graphShown = this._showGraph();
  }

  _event(kind, what) {
    if (kind === "session") this._showFacts(what);
    else if (kind === "runs") this.on.runs(this.handle, what.runs);
    else if (kind === "queues") this.queues.show(what.queues);
    else if (kind === "closed") {
      this.on.runs(this.handle, []);
      this.on.gone("This session is closed.");
    }
  }

  _showFacts(session) {
    const ttl = session.ttl_s === null ? "" : `, closed after ${session.ttl_s} s without use`;
    setText(this.facts, `${session.nodes} nodes, version ${session.graph_version}, ${session.plans} plans, ${session.runs} runs${ttl}`);
  }

  // Runs

  /** Runs the session. */
  start(body) {
    this._add(new RunView(this.handle, newRunId(), body));
  }

  /** Shows a run that another client has asked for, or one of this page. */
  open(id) {
    const known = this.runs.find((view) => view.id === id);
    if (known) this._showRun(known);
    else this._add(new RunView(this.handle, id, null));
  }

  _add(view) {
    view.addEventListener("change", () => this._showList());
    this.runs.unshift(view);
    for (const old of this.runs.splice(MOST_RUNS)) old.close();
    this._showRun(view);
  }

  _showRun(view) {
    this.shownRun = view;
    this.stage.replaceChildren(view.element);
    this._showList();
  }

  _showList() {
    this.list.replaceChildren(...this.runs.map((view) => element("li", {}, element("button", { type: "button", "aria-current": String(view === this.shownRun), onclick: () => this._showRun(view) }, element("span", { class: "mono" }, view.id), " ", element("small", {}, view.state)))));
    this._colourGraph();
  }

  // The graph

  _choice() {
    this.choice = element("p", { class: "row" });
    const show = () => {
      const names = (label, list) => (list.length ? [element("span", { class: "chip" }, `${label} ${list.join(", ")}`)] : []);
      const { feeds, fetches, targets } = this.chosen;
      this.choice.replaceChildren(...names("Fed:", [...feeds.keys()]), ...names("Fetched:", [...fetches]), ...names("Run:", [...targets]), ...(this.chosen.empty ? [] : [element("button", { type: "button", class: "primary", onclick: () => this.on.tab("run") }, "To the run")]));
    };
    this.chosen.addEventListener("change", show);
    show();
    return this.choice;
  }

  async _showGraph() {
    try {
      const { GraphView } = await import("./graph_view.js");
      const nodes = `${sessionPath(this.handle)}/nodes`;
      const of = (name) => (name ? `&function=${encodeURIComponent(name)}` : "");
      const graph = await call("GET", nodes);
      if (this.graph !== null) return;
      this.graph = new GraphView(graph, {
        worker: newWorker(),
        more: (name, ofFunction) => call("GET", `${nodes}?node=${encodeURIComponent(name)}${of(ofFunction)}`),
        nodesOf: (name) => call("GET", `${nodes}?${of(name).slice(1)}`),
        mark: (name) => this.chosen.useOf(name),
        choose: (kind, name) => this.chosen.toggle(kind, name),
        value: () => this._valueOf(),
      });
      this.graphPart.replaceChildren(this.graph.element);
      this._colourGraph();
    } catch (error) {
      setText(this.graphError, errorText(error));
    }
  }

  /** Colours the graph by the run that is shown, if it was traced. */
  _colourGraph() {
    const trace = this.shownRun?.trace ?? null;
    if (this.graph === null || trace === this.coloured) return;
    this.coloured = trace;
    this.graph.showTimes(trace);
  }

  /** What computes a node's value with the feeds of the run that is shown; undefined if that has none. */
  _valueOf() {
    const body = this.shownRun?.body;
    if (!body) return undefined;
    const feeds = this.form.feedsOf(body);
    return async (name) => {
      const fed = feeds[`${name}:0`] ?? feeds[name];
      if (fed !== undefined) return `fed: ${JSON.stringify(fed)}`;
      return answerText(await call("POST", `${sessionPath(this.handle)}:run`, { feeds, fetches: [`${name}:0`] }));
    };
  }
}

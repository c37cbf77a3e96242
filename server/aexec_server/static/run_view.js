// One run: its state, its answer or its error, and where its time went. Each run has a view of its own, so that nothing of
// another one can stand in it.

import { element, setText } from "./elements.js";
import { readEvents } from "./event_stream.js";
import { bytesText, secondsText } from "./format.js";
import { runTimes } from "./run_times.js";
import { call, errorText, request, runPath, sessionPath } from "./server.js";
import { Timeline } from "./timeline.js";
import { readTrace } from "./trace.js";
import { outputText } from "./values.js";

const STREAM = "text/event-stream";

export class RunView extends EventTarget {
  /** A run of a session by its id; `body` is the request's, or null for one of another client. */
  constructor(session, id, body) {
    super();
    Object.assign(this, { session, id, body });
    this.state = "waiting";
    this.began = performance.now();
    this.trace = null;
    this.outputs = [];
    this.badge = element("span", { class: "badge", role: "status" }, "waiting");
    this.took = element("span", { class: "faint" });
    this.progress = element("p", { class: "faint" });
    this.error = element("p", { class: "error", role: "alert" });
    this.answer = element("pre", { tabindex: 0, "aria-label": `Answer of ${id}`, hidden: true });
    this.times = element("div");
    this.cancel = element("button", { type: "button", class: "cancel", onclick: () => this._cancel() }, "Cancel");
    this.element = element(
      "article", { class: "run", "aria-label": `Run ${id}` },
      element("h3", { class: "row" }, element("span", { class: "mono" }, id), this.badge, this.took, this.cancel),
      this.progress, this.error, this.answer, this.times,
    );
    this.clock = setInterval(() => this._showTook(), 100);
    this.done = body === null ? this._follow() : this._post();
  }

  close() {
    clearInterval(this.clock);
    this.timeline?.close();
  }

  get ended() {
    return this.state !== "waiting" && this.state !== "running";
  }

  async _post() {
    await this._until(() => request("POST", `${sessionPath(this.session)}:run`, { body: { run_id: this.id, ...this.body }, accept: STREAM }));
  }

  async _follow() {
    await this._until(() => request("GET", `${runPath(this.session, this.id)}/events`, { accept: STREAM }));
  }

  async _until(ask) {
    try {
      await readEvents(await ask(), (kind, object) => this._event(kind, object));
      if (!this.ended) throw new Error("The server ended the answer before the run's end.");
    } catch (error) {
      if (!this.ended) this._end("failed", errorText(error));
    }
    if (this.body === null || this.body.options?.trace_level) await this._showTrace();
    this.dispatchEvent(new Event("change"));
  }

  _event(kind, object) {
    if (kind === "progress") {
      this._showState("running");
      const bytes = object.live_bytes === undefined ? "" : `, ${bytesText(object.live_bytes)} in memory`;
      setText(this.progress, object.nodes === undefined ? "" : `${object.nodes} nodes: ${object.running} running, ${object.ready} ready${bytes}`);
    } else if (kind === "output") {
      this.outputs.push(object);
      this.answer.hidden = false;
      setText(this.answer, this.outputs.map(outputText).join("\n\n"));
    } else if (kind === "done") this._end("done", "");
    else if (kind === "error") this._end(object.code === "CANCELLED" ? "cancelled" : "failed", errorText({ code: object.code, message: object.error, node: object.node }));
  }

  _end(state, text) {
    this._showState(state);
    this.seconds = (performance.now() - this.began) / 1000;
    setText(this.progress, "");
    setText(this.error, text);
    if (state === "done" && !this.outputs.length && this.body) {
      this.answer.hidden = false;
      setText(this.answer, "It has no outputs.");
    }
    this.cancel.hidden = true;
    clearInterval(this.clock);
    this._showTook();
    this.dispatchEvent(new Event("change"));
  }

  _showState(state) {
    if (this.state === state) return;
    this.state = state;
    setText(this.badge, state);
    this.badge.className = `badge ${{ done: "good", failed: "bad", cancelled: "bad" }[state] ?? ""}`;
    this.dispatchEvent(new Event("change"));
  }

  _showTook() {
    const seconds = this.seconds ?? (performance.now() - this.began) / 1000;
    setText(this.took, this.ended ? `${secondsText(seconds)}, as seen from here` : `${seconds.toFixed(1)} s`);
  }

  async _cancel() {
    this.cancel.disabled = true;
    try {
      await call("POST", `${runPath(this.session, this.id)}:cancel`, { reason: "cancelled in the console" });
    } catch (error) {
      if (!this.ended) setText(this.progress, error.message);
    }
  }

  async _showTrace() {
    try {
      this.trace = readTrace(await call("GET", `${runPath(this.session, this.id)}/trace`));
    } catch {
      return; // it was not traced, or it is forgotten
    }
    if (!this.trace.events.length) return;
    this.timeline = new Timeline(this.trace);
    this.times.replaceChildren(element("h4", {}, "Where the time went"), runTimes(this.trace), element("h4", {}, "Timeline"), this.timeline.element);
  }
}

/** An id for a run of this page. */
export function newRunId() {
  newRunId.number = (newRunId.number ?? 0) + 1;
  return `console-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}-${newRunId.number}`;
}

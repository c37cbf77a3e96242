// The runs in flight of all sessions that are known: for how long, what their nodes do and wait for, and a button that cancels.

import { element, keyed, setText } from "./elements.js";
import { call, Refused, runPath, sessionPath } from "./server.js";

const MOST_RUNS = 200; // rows
const MOST_SESSIONS = 20; // of which it is asked, besides the one that is followed
const MOST_DETAILS = 20; // runs of which it is asked what they wait for
const MOST_LINES = 4;

export class RunsTable {
  /** `open(session, run)` shows a run; `announce(text)` is read out. */
  constructor({ open, announce }) {
    Object.assign(this, { open, announce });
    this.bySession = new Map();
    this.marks = new Map();
    this.began = new Map();
    this.rows = element("tbody", { id: "runs" });
    this.none = element("p", { class: "faint" }, "Nothing runs.");
    const heads = [["Run"], ["Session"], ["State"], ["Seconds", "number"], ["What it does and waits for"], ["Cancel", "", "unseen"]];
    this.heading = element("h3", { tabindex: -1 }, "Runs in flight");
    this.element = element("section", {}, this.heading, element("div", { class: "wide" }, element("table", { class: "cards" }, element("thead", {}, element("tr", {}, ...heads.map(([text, kind = "", inner = ""]) => element("th", { scope: "col", class: kind }, element("span", { class: inner }, text))))), this.rows)), this.none);
    setInterval(() => this._showSeconds(), 200);
  }

  /** Takes the runs of one session, as its events have them. */
  show(session, runs) {
    this.bySession.set(session, runs.map((run) => ({ ...run, session })));
    this._draw();
  }

  /** Looks at the sessions in which something has begun or ended, except `followed`, of which events tell. */
  async look(sessions, followed) {
    const there = new Set(sessions.map((session) => session.session_handle));
    for (const handle of this.bySession.keys()) if (!there.has(handle) && handle !== followed) this.bySession.delete(handle);
    const changed = sessions.filter((session) => session.session_handle !== followed && this._changed(session));
    await Promise.all(changed.slice(0, MOST_SESSIONS).map((session) => this._ask(session)));
    this._draw();
  }

  _changed({ session_handle: handle, runs, runs_in_flight: inFlight }) {
    const mark = `${runs} ${inFlight}`;
    if (this.marks.get(handle) === mark) return false;
    this.marks.set(handle, mark);
    return true;
  }

  async _ask({ session_handle: handle, runs_in_flight: inFlight }) {
    try {
      const { runs } = inFlight ? await call("GET", `${sessionPath(handle)}/runs`) : { runs: [] };
      await Promise.all(runs.slice(0, MOST_DETAILS).map(async (run) => {
        run.waits_for = (await call("GET", runPath(handle, run.run_id))).waits_for;
      }));
      this.bySession.set(handle, runs.map((run) => ({ ...run, session: handle })));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.marks.delete(handle); // a run has ended meanwhile: the next event says more
    }
  }

  _draw() {
    const runs = [...this.bySession.values()].flat().slice(0, MOST_RUNS);
    const key = (run) => `${run.session} ${run.run_id}`;
    const before = this.began;
    const now = performance.now();
    this.began = new Map(runs.map((run) => [key(run), before.get(key(run)) ?? now - 1000 * run.seconds]));
    this._tell(before);
    this.none.hidden = runs.length > 0;
    const had = this.rows.contains(document.activeElement);
    keyed(this.rows, runs, key, (run) => this._row(run), updateRow);
    // Where the row with the focus goes away the heading takes it, so that the keyboard is not at the top again.
    if (had && !this.rows.contains(document.activeElement)) this.heading.focus({ preventScroll: true });
    this._showSeconds();
  }

  _tell(before) {
    const name = (key) => key.split(" ")[1];
    const begun = [...this.began.keys()].filter((key) => !before.has(key));
    const ended = [...before.keys()].filter((key) => !this.began.has(key));
    if (begun.length) this.announce(begun.length === 1 ? `Run ${name(begun[0])} has begun.` : `${begun.length} runs have begun.`);
    else if (ended.length) this.announce(ended.length === 1 ? `Run ${name(ended[0])} has ended.` : `${ended.length} runs have ended.`);
  }

  _row(run) {
    const cancelled = async (event) => {
      event.target.disabled = true;
      try {
        await call("POST", `${runPath(run.session, run.run_id)}:cancel`, { reason: "cancelled in the console" });
      } catch (error) {
        this.announce(error.message);
      }
    };
    return element(
      "tr", {},
      element("th", { scope: "row", class: "mono" }, element("button", { type: "button", class: "link", onclick: () => this.open(run.session, run.run_id) }, run.run_id)),
      element("td", { class: "mono", "data-label": "Session" }, run.session),
      element("td", { "data-label": "State" }), element("td", { class: "number", "data-label": "Seconds" }, element("span", { class: "seconds" })),
      element("td", { class: "waits" }),
      element("td", {}, element("button", { type: "button", class: "cancel", "aria-label": `Cancel run ${run.run_id}`, onclick: cancelled }, "Cancel")),
    );
  }

  _showSeconds() {
    const now = performance.now();
    for (const row of this.rows.children) setText(row.querySelector(".seconds"), ((now - this.began.get(row.dataset.key)) / 1000).toFixed(1));
  }
}

function updateRow(row, run) {
  setText(row.children[2], run.cancelled ? "being cancelled" : run.state);
  setText(row.children[4], run.waits_for?.slice(0, MOST_LINES).join("\n") ?? "");
}

// Partial runs: one is set up by the names of all that it is fed and of what is fetched, and goes on part by part.

import { element, setText } from "./elements.js";
import { call, errorText, runPath, sessionPath } from "./server.js";
import { answerText, namesIn, readValues, valueField } from "./values.js";

export class PartialPanel {
  /** `chosen` is what is chosen of the session's graph: a setup begins with it. */
  constructor(session, chosen) {
    this.session = session;
    this.chosen = chosen;
    this.parts = element("div");
    this.error = element("p", { class: "error", role: "alert" });
    const field = (id, label, placeholder) => {
      const area = element("textarea", { id, rows: 1, spellcheck: "false", placeholder });
      return [area, element("div", { class: "field" }, element("label", { for: id }, label), area)];
    };
    const fields = [field("partial-feeds", "Feeds", "x:0 more:0"), field("partial-fetches", "Fetches", "y:0 sum:0"), field("partial-targets", "Targets", "nodes that are run without a result")];
    [this.feeds, this.fetches, this.targets] = fields.map(([area]) => area);
    this.handle = element("input", { id: "partial-handle", autocomplete: "off", spellcheck: "false" });
    this.element = element(
      "div", {},
      element("form", { onsubmit: (event) => this._setUp(event) }, element("h3", {}, "Set one up"), ...fields.map(([, row]) => row), element("div", { class: "row" }, element("button", { class: "primary" }, "Set up"), element("button", { type: "button", onclick: () => this._take() }, "Take what is chosen in the graph"))),
      element("form", { class: "inline", onsubmit: (event) => this._open(event) }, element("label", { for: "partial-handle" }, "Open by handle"), this.handle, element("button", {}, "Open")),
      this.error, this.parts,
    );
  }

  _take() {
    this.feeds.value = [...this.chosen.feeds.keys()].join(" ");
    this.fetches.value = [...this.chosen.fetches].join(" ");
    this.targets.value = [...this.chosen.targets].join(" ");
  }

  async _setUp(event) {
    event.preventDefault();
    setText(this.error, "");
    const asked = { feeds: namesIn(this.feeds.value), fetches: namesIn(this.fetches.value), targets: namesIn(this.targets.value) };
    try {
      const { partial_run_handle: handle } = await call("POST", `${sessionPath(this.session)}:partialRunSetup`, asked);
      this.parts.prepend(new PartialRun(this.session, handle, asked).element);
    } catch (error) {
      setText(this.error, errorText(error));
    }
  }

  async _open(event) {
    event.preventDefault();
    setText(this.error, "");
    const handle = this.handle.value.trim();
    if (!handle) return;
    try {
      await call("GET", runPath(this.session, handle));
      this.parts.prepend(new PartialRun(this.session, handle, null).element);
    } catch (error) {
      setText(this.error, errorText(error));
    }
  }
}

/** A partial run under way. Its feeds and fetches are known if it was set up here; else the person names them. */
class PartialRun {
  constructor(session, handle, asked) {
    Object.assign(this, { session, handle });
    this.known = asked !== null;
    this.feeds = new Set(asked?.feeds ?? []);
    this.fetches = new Set(asked?.fetches ?? []);
    this.badge = element("span", { class: "badge", role: "status" }, "open");
    this.fields = element("div");
    this.log = element("ol", { class: "parts" });
    this.error = element("p", { class: "error", role: "alert" });
    this.form = element("form", { onsubmit: (event) => this._go(event) }, this.fields, element("button", { class: "primary" }, "Continue"));
    this.cancel = element("button", { type: "button", class: "cancel", onclick: () => this._cancel() }, "Cancel");
    this.element = element("article", { class: "run", "aria-label": `Partial run ${handle}` }, element("h3", { class: "row" }, element("span", { class: "mono" }, handle), this.badge, this.cancel), this.log, this.error, this.form);
    this._showFields();
  }

  /** A box for each feed and fetch that is left: those that are ticked are in the next part. */
  _showFields() {
    if (!this.known) {
      this._showUnknown();
      return;
    }
    const check = (kind, name, more = "") => {
      const id = `${kind}-${this.handle}-${name}`;
      return element("div", { class: "field" }, element("label", { class: "check", for: id }, element("input", { id, type: "checkbox", "data-kind": kind, "data-name": name, checked: kind === "feed" && this.feeds.size === 1 }), `${kind === "feed" ? "Feed" : "Fetch"} ${name}`), more);
    };
    const value = (name) => {
      const area = element("textarea", { rows: 1, spellcheck: "false", "aria-label": `Value of ${name}`, "data-value-of": name });
      area.value = "0";
      return area;
    };
    this.fields.replaceChildren(...[...this.feeds].map((name) => check("feed", name, value(name))), ...[...this.fetches].map((name) => check("fetch", name)));
  }

  _showUnknown() {
    const feed = element("input", { id: `feed-${this.handle}`, placeholder: "x:0", autocomplete: "off" });
    const fetches = element("input", { id: `fetch-${this.handle}`, placeholder: "y:0", autocomplete: "off" });
    const added = element("div");
    const add = () => namesIn(feed.value).forEach((name) => added.append(valueField(`value-${this.handle}-${name}`, { name }, "0")));
    this.fields.replaceChildren(
      added,
      element("div", { class: "field" }, element("label", { for: feed.id }, "Feed a tensor"), element("span", { class: "inline" }, feed, element("button", { type: "button", onclick: add }, "Feed it"))),
      element("div", { class: "field" }, element("label", { for: fetches.id }, "Fetches"), fetches),
    );
    this.unknown = { added, fetches };
  }

  _asked() {
    if (!this.known) return { feeds: readValues(this.unknown.added), fetches: namesIn(this.unknown.fetches.value) };
    const ticked = (kind) => [...this.fields.querySelectorAll(`input[data-kind=${kind}]:checked`)].map((box) => box.dataset.name);
    const feeds = Object.fromEntries(ticked("feed").map((name) => {
      const area = [...this.fields.querySelectorAll("textarea")].find((one) => one.dataset.valueOf === name);
      try {
        return [name, JSON.parse(area.value)];
      } catch (error) {
        throw new Error(`${name} is no JSON value: ${error.message}`);
      }
    }));
    return { feeds, fetches: ticked("fetch") };
  }

  async _go(event) {
    event.preventDefault();
    setText(this.error, "");
    try {
      const asked = this._asked();
      const answer = await call("POST", `${sessionPath(this.session)}/partialRuns/${encodeURIComponent(this.handle)}:run`, asked);
      for (const name of Object.keys(asked.feeds)) this.feeds.delete(name);
      for (const name of asked.fetches) this.fetches.delete(name);
      this.log.append(element("li", {}, `Fed ${Object.keys(asked.feeds).join(", ") || "nothing"}`, element("pre", { tabindex: 0, "aria-label": "Answer of a part" }, answerText(answer) || "nothing was fetched")));
      if (this.known && !this.feeds.size && !this.fetches.size) this._end("done");
      else this._showFields();
    } catch (error) {
      setText(this.error, errorText(error));
      if (error.code && error.code !== "INVALID_ARGUMENT") this._end("ended");
    }
  }

  async _cancel() {
    try {
      await call("POST", `${runPath(this.session, this.handle)}:cancel`, { reason: "cancelled in the console" });
      this._end("cancelled");
    } catch (error) {
      setText(this.error, errorText(error));
    }
  }

  _end(text) {
    setText(this.badge, text);
    this.form.hidden = this.cancel.hidden = true;
  }
}

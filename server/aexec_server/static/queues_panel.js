// The queues of a session: how full they are, and forms that feed, drain and close one.

import { element, keyed, setText } from "./elements.js";
import { call, errorText, queuePath } from "./server.js";
import { answerText } from "./values.js";

const UNBOUNDED = 2 ** 31 - 1;
const WAIT_MS = 2000;

export class QueuesPanel {
  constructor(session) {
    this.session = session;
    this.queues = [];
    this.rows = element("tbody");
    this.none = element("p", { class: "faint" }, "There is none so far: a queue is listed once a run, or a call for it, has made it.");
    this.name = element("input", { id: "queue-name", autocomplete: "off", spellcheck: "false", list: "queue-names" });
    this.names = element("datalist", { id: "queue-names" });
    this.components = element("textarea", { id: "queue-components", rows: 1, spellcheck: "false" });
    this.components.value = "[1]";
    this.many = element("input", { id: "queue-many", type: "checkbox" });
    this.count = element("input", { id: "queue-count", type: "number", min: 1, value: 1 });
    this.told = element("pre", { tabindex: 0, hidden: true, "aria-label": "Elements and errors" });
    this.error = element("p", { class: "error", role: "alert" });
    this.element = element("div", {}, this._table(), this.none, this._forms());
  }

  _table() {
    const heads = ["Queue", "Kind", "Filled", "Elements", "Producers waiting", "Consumers waiting", "State"];
    return element("div", { class: "wide" }, element(
      "table", { class: "cards" },
      element("thead", {}, element("tr", {}, ...heads.map((text, i) => element("th", { scope: "col", class: i > 2 && i < 6 ? "number" : "" }, text)))),
      this.rows,
    ));
  }

  _forms() {
    const field = (id, label, input) => element("div", { class: "field" }, element("label", { for: id }, label), input);
    const button = (text, action, kind = "") => element("button", { type: "button", class: kind, onclick: () => this._do(action) }, text);
    return element(
      "form", { onsubmit: (event) => event.preventDefault() },
      element("h3", {}, "Feed and drain"),
      field("queue-name", "Queue", element("span", {}, this.name, this.names)),
      element("div", { class: "field" }, element("label", { for: "queue-components" }, "Components ", element("small", {}, "a list with one value for each")), this.components),
      element("div", { class: "row" }, element("label", { class: "check" }, this.many, "Each row is an element"), button("Put in", () => this._put())),
      element("div", { class: "row" }, element("label", { for: "queue-count" }, "Elements"), this.count, button("Take out", () => this._take()), button("Close the queue", () => this._close(), "cancel")),
      this.error, this.told,
    );
  }

  async _do(action) {
    setText(this.error, "");
    this.told.hidden = true;
    try {
      setText(this.told, await action());
      this.told.hidden = false;
    } catch (error) {
      setText(this.error, errorText(error));
    }
  }

  get _path() {
    const name = this.name.value.trim();
    if (!name) throw new Error("Which queue? Give its name.");
    return queuePath(this.session, name);
  }

  async _put() {
    let components;
    try {
      components = JSON.parse(this.components.value);
    } catch (error) {
      throw new Error(`The components are no JSON value: ${error.message}`);
    }
    const queue = await call("POST", `${this._path}:enqueue`, { components, many: this.many.checked, timeout_in_ms: WAIT_MS });
    return `${queue.name} has ${queue.size} elements.`;
  }

  async _take() {
    const count = Number(this.count.value);
    const taken = await call("POST", `${this._path}:dequeue`, { ...(count > 1 ? { count } : {}), timeout_in_ms: WAIT_MS });
    const outputs = Object.fromEntries(taken.components.map((value, i) => [`component ${i}`, value]));
    const by = (list) => Object.fromEntries(list.map((one, i) => [`component ${i}`, one]));
    return answerText({ outputs, dtypes: by(taken.dtypes), shapes: by(taken.shapes) });
  }

  async _close() {
    const queue = await call("POST", `${this._path}:close`, {});
    return `${queue.name} is closed.`;
  }

  /** Takes the queues as the session's events have them. */
  show(queues) {
    this.queues = queues;
    this.none.hidden = queues.length > 0;
    if (!this.name.value && queues.length) this.name.value = queues[0].name;
    this.names.replaceChildren(...queues.map((queue) => element("option", { value: queue.name })));
    keyed(this.rows, queues, (queue) => queue.name, (queue) =>
      element("tr", {}, element("th", { scope: "row", class: "mono" }, queue.name), element("td", { "data-label": "Kind" }, queue.kind),
        element("td", {}, element("meter", { min: 0, "aria-label": `How full ${queue.name} is` })),
        ...["Elements", "Producers waiting", "Consumers waiting"].map((name) => element("td", { class: "number", "data-label": name })), element("td", { "data-label": "State" })),
    updateRow);
  }
}

function updateRow(row, queue) {
  const bounded = queue.capacity > 0 && queue.capacity < UNBOUNDED;
  const meter = row.querySelector("meter");
  meter.max = bounded ? queue.capacity : Math.max(1, queue.size, queue.peak ?? 0);
  meter.value = queue.size;
  setText(row.children[3], bounded ? `${queue.size} of ${queue.capacity}` : queue.size);
  setText(row.children[4], queue.waiting_producers);
  setText(row.children[5], queue.waiting_consumers);
  setText(row.children[6], queue.closed ? "closed" : "open");
}

// A graph that folds, on a canvas, with a panel that finds nodes, says what they are, and chooses what a run feeds and fetches.

import { element, setText } from "./elements.js";
import { Layouts } from "./graph_boxes.js";
import { GraphCanvas } from "./graph_canvas.js";
import { DeviceColours, TimeColours } from "./graph_colours.js";
import { attrFacts, groupDetails, nodeDetails, timeText } from "./graph_details.js";
import { GraphTree } from "./graph_tree.js";

const MOST_FOUND = 50;

export class GraphView {
  /**
   * `graph` is the answer of `…/nodes`. `asked` has more(name), of a node's attrs; nodesOf(function); mark(name), how a
   * run uses a node; choose(kind, name), to feed, fetch or run it, or undefined; value(), undefined or a function that
   * computes a node's value by name; worker, which lays graphs out.
   */
  constructor(graph, asked) {
    this.asked = asked;
    this.total = graph.total;
    this.nodes = graph.nodes.length;
    this.tree = new GraphTree(graph.nodes);
    this.times = null;
    this.colours = null;
    this.layouts = new Layouts(asked.worker);
    this.canvas = new GraphCanvas({
      choose: (item) => this.choose(item),
      toggle: (item) => this.toggle(item),
      mark: (item) => (item.node ? asked.mark(item.node.name) : undefined),
      colour: (item) => this.colours?.of(item) ?? null,
      note: (item) => this.colours?.note(item),
    });
    this.element = this._build();
    this.ready = this._layOut(null);
  }

  close() {
    this.layouts.close();
    this.canvas.close();
    this.element.remove();
  }

  _build() {
    this.working = element("p", { class: "working", role: "status" }, "Laying out …");
    this.search = element("input", { type: "search", id: "node-search", placeholder: "name or op", autocomplete: "off", spellcheck: "false", oninput: () => this._find() });
    this.found = element("ul", { "aria-label": "Nodes found" });
    this.count = element("p", { class: "faint", role: "status" }, this._about());
    this.details = element("div", { class: "details" });
    this.legend = element("ul", { class: "legend", "aria-label": "Meaning of the colours" });
    this.colour = element("select", { id: "graph-colour", onchange: () => this._colour() }, element("option", { value: "" }, "nothing"), element("option", { value: "device" }, "device"), element("option", { value: "time", disabled: true }, "time of a traced run"));
    const button = (text, label, action) => element("button", { type: "button", "aria-label": label, title: label, onclick: action }, text);
    const tools = element("div", { class: "tools" }, button("+", "Larger", () => this.canvas.zoom(1.4)), button("−", "Smaller", () => this.canvas.zoom(1 / 1.4)), button("⤢", "Show all", () => this.canvas.showAll()), button("⊟", "Fold all", () => this._foldAll()));
    return element(
      "div", { class: "graph" },
      element("div", { class: "drawing" }, this.canvas.canvas, this.working, tools, this.legend),
      element(
        "div", { class: "about-node" },
        element("label", { for: "node-search" }, "Find a node"), this.search,
        element("p", { class: "row" }, element("label", { for: "graph-colour" }, "Colours"), this.colour),
        this.count, this.found, this.details,
      ),
    );
  }

  _about() {
    return this.total > this.nodes ? `The first ${this.nodes} of ${this.total} nodes` : `${this.total} nodes`;
  }

  async _layOut(still) {
    this.working.hidden = false;
    try {
      const { boxes, lines } = await this.layouts.layOut(this.tree);
      this.canvas.show(boxes, lines, still);
      this.working.hidden = true;
      this._showLegend();
    } catch (error) {
      setText(this.working, error.message);
    }
  }

  // Folding

  async toggle(item) {
    if (!item.open && item.node && !item.children.length) {
      const functions = await Promise.all(item.node.calls.map(async (name) => [name, (await this.asked.nodesOf(name)).nodes]));
      this.tree.addFunctions(item, functions);
    }
    item.open = !item.open;
    await this._layOut(item);
    if (this.canvas.chosen === item) this.choose(item);
  }

  async _foldAll() {
    this.tree.foldAll();
    await this._layOut(null);
  }

  // Finding and choosing

  _find() {
    const text = this.search.value.trim().toLowerCase();
    const found = [];
    let count = 0;
    if (text) {
      for (const item of this.tree.items.values()) {
        const name = item.node ? item.node.name : item.kind === "scope" ? item.id : "";
        if (!name.toLowerCase().includes(text) && !item.node?.op.toLowerCase().includes(text)) continue;
        count += 1;
        if (found.length < MOST_FOUND) found.push([item, name]);
      }
    }
    setText(this.count, text ? `${count} found${count > MOST_FOUND ? `, of which the first ${MOST_FOUND}` : ""}` : this._about());
    this.details.replaceChildren();
    this.found.replaceChildren(...found.map(([item, name]) => element("li", {}, element("button", { type: "button", onclick: () => this.goTo(item) }, name))));
  }

  /** Unfolds what an item is in, brings it into the middle, and chooses it. */
  async goTo(item) {
    this.tree.reveal(item);
    this.choose(item);
    await this._layOut(item);
    this.canvas.goTo(item);
  }

  choose(item) {
    this.canvas.chosen = item;
    this.canvas.redraw();
    this.found.replaceChildren();
    if (!item) {
      this.details.replaceChildren();
      setText(this.count, this._about());
      return;
    }
    const asked = {
      goTo: (one) => this.goTo(one),
      toggle: (one) => this.toggle(one),
      time: this.times && ((one) => timeText(new TimeColours(this.times.seconds).sum(one))),
      ran: this.times && ((one) => this.times.devices.get(one.node.name)),
      choose: this.asked.choose && ((kind, one) => {
        this.asked.choose(kind, one.node.name);
        this.canvas.redraw();
      }),
      value: this.asked.value() && ((one) => this._value(one)),
    };
    setText(this.count, item.node ? `Chosen: ${item.node.name}, ${item.node.op}` : `Chosen: ${item.label}, ${item.size} nodes`);
    this.details.parentElement.scrollTop = 0;
    if (!item.node) {
      this.details.replaceChildren(...groupDetails(item, asked));
      return;
    }
    const attrs = element("dl");
    this.value = element("pre", { hidden: true, tabindex: 0, "aria-label": "Its value" });
    this.details.replaceChildren(...nodeDetails(item, asked, element("div", {}, this.value, attrs)));
    this._showAttrs(item, attrs);
  }

  async _showAttrs(item, attrs) {
    const within = item.id.includes(">") ? item.id.slice(0, item.id.lastIndexOf(">")).split(">").at(-1) : null;
    try {
      const answer = await this.asked.more(item.node.name, within);
      attrs.replaceChildren(...attrFacts(answer.nodes[0].attrs));
    } catch (error) {
      attrs.replaceChildren(...attrFacts({ Attrs: error.message }));
    }
  }

  async _value(item) {
    const { value } = this;
    value.hidden = false;
    setText(value, "…");
    try {
      setText(value, await this.asked.value()(item.node.name));
    } catch (error) {
      setText(value, error.message);
    }
  }

  // Colours

  /** Takes the times of a traced run: {seconds, devices}, by name of node; null for none. */
  showTimes(times) {
    this.times = times;
    this.colour.options[2].disabled = times === null;
    if (times !== null) this.colour.value = "time";
    else if (this.colour.value === "time") this.colour.value = "";
    this._colour();
    if (this.canvas.chosen) this.choose(this.canvas.chosen);
  }

  _colour() {
    const made = { device: () => new DeviceColours(this.times?.devices), time: () => new TimeColours(this.times.seconds) };
    this.colours = made[this.colour.value]?.() ?? null;
    this.canvas.redraw();
    this._showLegend();
  }

  _showLegend() {
    for (const box of this.canvas.boxes) this.colours?.of(box.item);
    this.legend.replaceChildren(...(this.colours?.legend() ?? []).map(([colour, text]) => {
      const swatch = element("span", { class: "swatch" });
      swatch.style.background = colour;
      return element("li", {}, swatch, text);
    }));
  }
}

// Draws a graph on a canvas: drag and wheel, or arrows, + and -, move it; a click, or the search, chooses a node.

import { element, setText, shapeText } from "./elements.js";

const HEIGHT = 30;
const MOST_FOUND = 50;
const MOST_LINKS = 40;
const policy = globalThis.trustedTypes?.createPolicy("aexec", { createScriptURL: (url) => {
  if (url !== "/console/graph_layout.js") throw new TypeError(`no script of this page: ${url}`);
  return url;
} });
const script = (url) => (policy ? policy.createScriptURL(url) : url);

/** The node that an input names: `node`, `node:1`, `node:output:0` or `^node`. */
const sourceOf = (input) => input.replace(/^\^/, "").split(":")[0];

export class GraphView {
  /** `graph` is the answer of `…/nodes`; `more(name)` gives that of one node. */
  constructor(parent, graph, more) {
    this.nodes = graph.nodes;
    this.more = more;
    this.numbers = new Map(this.nodes.map((node, i) => [node.name, i]));
    this.edges = [];
    this.users = this.nodes.map(() => []);
    this.nodes.forEach((node, to) => {
      for (const input of node.inputs) {
        const from = this.numbers.get(sourceOf(input));
        if (from === undefined) continue;
        this.edges.push({ from, to, control: input.startsWith("^") });
        this.users[from].push(to);
      }
    });
    this.chosen = null;
    this.scale = 1;
    this.left = this.top = 0;
    this._build(parent, graph);
    this._layOut();
  }

  close() {
    this.worker?.terminate();
    this.resizes.disconnect();
    this.dark.removeEventListener("change", this.recolour);
    this.parent.replaceChildren();
  }

  // The page's part

  _build(parent, graph) {
    this.parent = parent;
    this.canvas = element("canvas", { tabindex: 0, role: "application", "aria-label": "Graph: arrows move it, plus and minus change its size, 0 shows all. The search beside it finds nodes." });
    this.working = element("p", { class: "working", role: "status" }, "Laying out …");
    this.search = element("input", { type: "search", id: "node-search", placeholder: "name or op", autocomplete: "off", spellcheck: "false", oninput: () => this._find() });
    this.found = element("ul", { "aria-label": "Nodes found" });
    this.count = element("p", { class: "faint", role: "status" });
    this.details = element("div");
    const button = (text, label, action) => element("button", { type: "button", "aria-label": label, title: label, onclick: action }, text);
    const tools = element("div", { class: "tools" }, button("+", "Larger", () => this._zoom(1.4)), button("−", "Smaller", () => this._zoom(1 / 1.4)), button("⤢", "Show all", () => this.showAll()));
    parent.replaceChildren(
      element("div", { class: "drawing" }, this.canvas, this.working, tools),
      element("div", { class: "about-node" }, element("label", { for: "node-search" }, "Find a node"), this.search, this.count, this.details, this.found),
    );
    setText(this.count, graph.total > this.nodes.length ? `The first ${this.nodes.length} of ${graph.total} nodes` : `${graph.total} nodes`);
    this.context = this.canvas.getContext("2d");
    this.recolour = () => {
      const style = getComputedStyle(document.documentElement);
      this.colours = Object.fromEntries(["back", "panel", "text", "faint", "line", "link", "accent"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
      this.mono = style.getPropertyValue("--mono");
      this._soon();
    };
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", this.recolour);
    this.recolour();
    this.resizes = new ResizeObserver(() => this._resize());
    this.resizes.observe(this.canvas);
    this._listen();
  }

  _resize() {
    const { width, height } = this.canvas.getBoundingClientRect();
    const density = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * density);
    this.canvas.height = Math.round(height * density);
    this._soon();
  }

  _listen() {
    const { canvas } = this;
    const pointers = new Map();
    let moved = 0;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
      moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const last = pointers.get(event.pointerId);
      if (!last) return;
      const now = [event.offsetX, event.offsetY];
      if (pointers.size === 2) {
        const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
        const distance = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]);
        this._zoom(distance(now) / Math.max(1, distance(last)), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
      } else this._move(now[0] - last[0], now[1] - last[1]);
      moved += Math.abs(now[0] - last[0]) + Math.abs(now[1] - last[1]);
      pointers.set(event.pointerId, now);
    });
    canvas.addEventListener("pointerup", (event) => {
      pointers.delete(event.pointerId);
      if (moved < 5) this._choose(this._at(event.offsetX, event.offsetY));
    });
    canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this._zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.offsetX, event.offsetY);
    }, { passive: false });
    const keys = {
      ArrowLeft: () => this._move(60, 0), ArrowRight: () => this._move(-60, 0), ArrowUp: () => this._move(0, 60), ArrowDown: () => this._move(0, -60),
      "+": () => this._zoom(1.3), "=": () => this._zoom(1.3), "-": () => this._zoom(1 / 1.3), 0: () => this.showAll(),
    };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || !(event.key in keys)) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  // Where things are

  _layOut() {
    this.context.font = `12px ${this.mono}`;
    this.labels = this.nodes.map(({ name }) => (name.length > 28 ? `…${name.slice(-27)}` : name));
    this.widths = this.nodes.map((node, i) => Math.max(60, 14 + 7.3 * Math.max(this.labels[i].length, node.op.length)));
    this.worker = new Worker(script("/console/graph_layout.js"));
    this.worker.onmessage = ({ data }) => {
      Object.assign(this, data);
      this.worker.terminate();
      this.working.remove();
      this.showAll();
      if (this.chosen !== null) this.goTo(this.chosen);
    };
    this.worker.onerror = () => setText(this.working, "It cannot be laid out.");
    this.worker.postMessage({ count: this.nodes.length, edges: this.edges.flatMap((edge) => [edge.from, edge.to]), widths: this.widths });
  }

  showAll() {
    if (!this.x?.length) return;
    let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
    this.nodes.forEach((_, i) => {
      left = Math.min(left, this.x[i] - this.widths[i] / 2);
      right = Math.max(right, this.x[i] + this.widths[i] / 2);
      top = Math.min(top, this.y[i]);
      bottom = Math.max(bottom, this.y[i]);
    });
    const { width, height } = this.canvas.getBoundingClientRect();
    this.scale = Math.min(1.2, (width - 40) / (right - left), (height - 60) / (bottom - top + HEIGHT));
    this.left = width / 2 - (this.scale * (left + right)) / 2;
    this.top = height / 2 - (this.scale * (top + bottom)) / 2;
    this._soon();
  }

  _move(x, y) {
    this.left += x;
    this.top += y;
    this._soon();
  }

  _zoom(factor, x = null, y = null) {
    const { width, height } = this.canvas.getBoundingClientRect();
    [x, y] = [x ?? width / 2, y ?? height / 2];
    const scale = Math.min(3, Math.max(0.005, this.scale * factor));
    this.left = x - ((x - this.left) * scale) / this.scale;
    this.top = y - ((y - this.top) * scale) / this.scale;
    this.scale = scale;
    this._soon();
  }

  _at(px, py) {
    if (!this.x) return null;
    const [x, y] = [(px - this.left) / this.scale, (py - this.top) / this.scale];
    const slack = 4 / this.scale;
    const hit = (_, i) => Math.abs(this.x[i] - x) <= this.widths[i] / 2 + slack && Math.abs(this.y[i] - y) <= HEIGHT / 2 + slack;
    const i = this.nodes.findIndex(hit);
    return i < 0 ? null : i;
  }

  // Drawing

  _soon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this._draw();
    });
  }

  _draw() {
    const { context, canvas, colours, scale } = this;
    const density = devicePixelRatio || 1;
    const [width, height] = [canvas.width / density, canvas.height / density];
    context.setTransform(density, 0, 0, density, 0, 0);
    context.fillStyle = colours.back;
    context.fillRect(0, 0, width, height);
    if (!this.x) return;
    context.setTransform(density * scale, 0, 0, density * scale, density * this.left, density * this.top);
    const seen = { left: -this.left / scale, right: (width - this.left) / scale, top: -this.top / scale, bottom: (height - this.top) / scale };
    this._drawEdges(seen);
    this._drawNodes(seen);
  }

  _drawEdges(seen) {
    const { context, colours, x, y } = this;
    const path = { plain: new Path2D(), control: new Path2D(), chosen: new Path2D() };
    for (const { from, to, control } of this.edges) {
      const [x1, y1, x2, y2] = [x[from], y[from] + HEIGHT / 2, x[to], y[to] - HEIGHT / 2];
      if (Math.max(x1, x2) < seen.left || Math.min(x1, x2) > seen.right || Math.max(y1, y2) < seen.top || Math.min(y1, y2) > seen.bottom) continue;
      const line = from === this.chosen || to === this.chosen ? path.chosen : control ? path.control : path.plain;
      const bend = Math.max(12, Math.abs(y2 - y1) / 2);
      line.moveTo(x1, y1);
      line.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
    }
    context.lineWidth = Math.max(1, 0.5 / this.scale);
    context.strokeStyle = colours.faint;
    context.globalAlpha = this.scale < 0.3 ? 0.35 : 0.7;
    context.stroke(path.plain);
    context.setLineDash([5, 4]);
    context.stroke(path.control);
    context.setLineDash([]);
    context.globalAlpha = 1;
    context.lineWidth *= 2;
    context.strokeStyle = colours.link;
    context.stroke(path.chosen);
  }

  _drawNodes(seen) {
    const { context, colours, x, y, widths } = this;
    const readable = this.scale > 0.45;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = 1;
    this.nodes.forEach((node, i) => {
      const half = widths[i] / 2;
      if (x[i] + half < seen.left || x[i] - half > seen.right || y[i] + HEIGHT < seen.top || y[i] - HEIGHT > seen.bottom) return;
      const chosen = i === this.chosen;
      context.fillStyle = chosen ? colours.link : readable ? colours.panel : colours.accent;
      context.fillRect(x[i] - half, y[i] - HEIGHT / 2, widths[i], HEIGHT);
      if (!readable) return;
      context.strokeStyle = chosen ? colours.link : colours.faint;
      context.strokeRect(x[i] - half, y[i] - HEIGHT / 2, widths[i], HEIGHT);
      context.font = `12px ${this.mono}`;
      context.fillStyle = chosen ? colours.back : colours.text;
      context.fillText(this.labels[i], x[i], y[i] - 6);
      context.font = `10px ${this.mono}`;
      context.fillStyle = chosen ? colours.back : colours.faint;
      context.fillText(node.op, x[i], y[i] + 8);
    });
  }

  // Choosing

  _find() {
    const text = this.search.value.trim().toLowerCase();
    this.details.replaceChildren();
    const found = [];
    let count = 0;
    if (text) {
      this.nodes.forEach((node, i) => {
        if (!node.name.toLowerCase().includes(text) && !node.op.toLowerCase().includes(text)) return;
        count += 1;
        if (found.length < MOST_FOUND) found.push(i);
      });
    }
    setText(this.count, text ? `${count} found${count > MOST_FOUND ? `, of which the first ${MOST_FOUND}` : ""}` : `${this.nodes.length} nodes`);
    this.found.replaceChildren(...found.map((i) => this._link(i)));
  }

  _link(i, text = this.nodes[i].name) {
    return element("li", {}, element("button", { type: "button", onclick: () => this.goTo(i) }, text));
  }

  /** Brings a node into the middle, large enough to be read, and chooses it. */
  goTo(i) {
    if (this.x) {
      const { width, height } = this.canvas.getBoundingClientRect();
      this.scale = Math.max(this.scale, 0.9);
      this.left = width / 2 - this.scale * this.x[i];
      this.top = height / 2 - this.scale * this.y[i];
    }
    this._choose(i);
  }

  async _choose(i) {
    this.chosen = i;
    this._soon();
    if (i === null) {
      this.details.replaceChildren();
      return;
    }
    const node = this.nodes[i];
    setText(this.count, `Chosen: ${node.name}, ${node.op}`);
    this.details.parentElement.scrollTop = 0;
    const facts = element("dl", {}, ...this._fact("Op", node.op), ...this._fact("Device", node.device), ...node.outputs.flatMap((output, k) => this._fact(node.outputs.length > 1 ? `Output ${k}` : "Output", `${output.datatype}, ${shapeText(output.shape)}`)));
    const attrs = element("dl");
    this.details.replaceChildren(element("h4", { class: "mono" }, node.name), facts, ...this._links("Takes", node.inputs.map((input) => [this.numbers.get(sourceOf(input)), input])), ...this._links("Taken by", [...new Set(this.users[i])].map((user) => [user, this.nodes[user].name])), attrs);
    try {
      const answer = await this.more(node.name);
      if (this.chosen === i) attrs.replaceChildren(...Object.entries(answer.nodes[0].attrs).flatMap(([name, text]) => this._fact(name, text)));
    } catch (error) {
      if (this.chosen === i) attrs.replaceChildren(...this._fact("Attrs", error.message));
    }
  }

  _fact(name, text) {
    return text === "" ? [] : [element("dt", {}, name), element("dd", { class: "mono" }, text)];
  }

  _links(heading, links) {
    if (!links.length) return [];
    const shown = links.slice(0, MOST_LINKS).map(([i, text]) => (i === undefined ? element("li", { class: "mono" }, text) : this._link(i, text)));
    if (links.length > MOST_LINKS) shown.push(element("li", { class: "faint" }, `and ${links.length - MOST_LINKS} more`));
    return [element("h4", {}, heading), element("ul", {}, ...shown)];
  }
}

// The timeline of a traced run: a part that folds for each device, with rows in which nothing overlaps; wheel, drag, arrows,
// plus, minus and 0 choose the time that is shown, a click says what a bar is.

import { element, setText } from "./elements.js";
import { microsText } from "./trace.js";

const ROW = 20;
const AXIS = 18;
const MOST_ROWS = 64;
const MOST_LISTED = 40;
const COLOURS = ["#00577f", "#8f3b00", "#00654a", "#7a3d64", "#5b5b00", "#4a4a4a", "#1f4e9e", "#8a1f3d"];

export class Timeline {
  constructor(trace) {
    this.trace = trace;
    this.from = 0;
    this.to = trace.total;
    this.about = element("p", { class: "faint mono", role: "status" });
    this.parts = byDevice(trace.events).map((part) => this._part(part));
    this.element = element("div", {}, element("p", { class: "faint" }, `${trace.events.length} nodes in ${microsText(trace.total)}`), ...this.parts.map((part) => part.element), this.about, this._longest());
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this._redraw();
    this.dark.addEventListener("change", this.redraw);
    this.resizes = new ResizeObserver(this.redraw);
    for (const part of this.parts) this.resizes.observe(part.canvas);
  }

  close() {
    this.resizes.disconnect();
    this.dark.removeEventListener("change", this.redraw);
  }

  _part({ device, rows, events }) {
    const height = AXIS + ROW * Math.min(rows, MOST_ROWS);
    const canvas = element("canvas", { tabindex: 0, role: "application", "aria-label": `${device}: ${events.length} nodes. Arrows move the time that is shown, plus and minus change its length, 0 shows all; the table below has the longest.`, class: "bars" });
    canvas.style.height = `${height}px`;
    const part = { canvas, events, element: element("details", { open: true, class: "lane" }, element("summary", {}, `${device || "no device"}: ${events.length} nodes on ${rows} ${rows === 1 ? "row" : "rows"}`), canvas) };
    this._listen(part);
    return part;
  }

  _longest() {
    const longest = [...this.trace.events].sort((a, b) => b.micros - a.micros).slice(0, MOST_LISTED);
    return element("details", {}, element("summary", {}, "The longest as a table"), element("div", { class: "wide" }, element(
      "table", {},
      element("thead", {}, element("tr", {}, ...["Node", "Op", "Began after", "Took", "Where"].map((text) => element("th", { scope: "col" }, text)))),
      element("tbody", {}, ...longest.map((event) => element("tr", {}, element("th", { scope: "row", class: "mono" }, event.name), element("td", {}, event.op), element("td", { class: "number" }, microsText(event.start)), element("td", { class: "number" }, microsText(event.micros)), element("td", {}, `${event.device}, ${event.row}`)))),
    )));
  }

  // What is shown

  _show(from, to) {
    const least = this.trace.total / 1e6;
    const length = Math.min(this.trace.total, Math.max(least, to - from));
    this.from = Math.min(Math.max(0, from), this.trace.total - length);
    this.to = this.from + length;
    this._redraw();
  }

  /** Changes the length that is shown; what is at `share` of it stays there. */
  _zoom(factor, share = 0.5) {
    const [length, at] = [this.to - this.from, this.from + share * (this.to - this.from)];
    this._show(at - share * length * factor, at + (1 - share) * length * factor);
  }

  _move(share) {
    const step = share * (this.to - this.from);
    this._show(this.from + step, this.to + step);
  }

  _listen({ canvas, events }) {
    let last = null;
    let moved = 0;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      [last, moved] = [event.offsetX, 0];
    });
    canvas.addEventListener("pointermove", (event) => {
      if (last === null) return;
      this._move((last - event.offsetX) / canvas.clientWidth);
      moved += Math.abs(last - event.offsetX);
      last = event.offsetX;
    });
    canvas.addEventListener("pointerup", (event) => {
      last = null;
      if (moved < 4) this._tell(events, this.from + (event.offsetX / canvas.clientWidth) * (this.to - this.from), Math.floor((event.offsetY - AXIS) / ROW), canvas.clientWidth);
    });
    canvas.addEventListener("pointercancel", () => (last = null));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this._move(event.deltaX / canvas.clientWidth);
      else this._zoom(Math.exp(event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.offsetX / canvas.clientWidth);
    }, { passive: false });
    const keys = {
      ArrowLeft: () => this._move(-0.2), ArrowRight: () => this._move(0.2), "+": () => this._zoom(0.7), "=": () => this._zoom(0.7), "-": () => this._zoom(1 / 0.7), 0: () => this._show(0, this.trace.total),
    };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || !(event.key in keys)) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  _tell(events, micros, row, width) {
    const slack = (3 * (this.to - this.from)) / width;
    const found = events.find((event) => event.place === row && event.start - slack <= micros && micros <= event.start + event.micros + slack);
    setText(this.about, found ? `${found.name} (${found.op}): ${microsText(found.micros)}, after ${microsText(found.start)}, ${found.row}${found.about ? `, ${found.about}` : ""}` : "");
  }

  // Drawing

  _redraw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      const style = getComputedStyle(document.documentElement);
      const colours = Object.fromEntries(["panel", "faint", "line"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
      for (const part of this.parts) this._draw(part, colours);
    });
  }

  _draw({ canvas, events }, colours) {
    const density = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width) return;
    [canvas.width, canvas.height] = [Math.round(width * density), Math.round(height * density)];
    const context = canvas.getContext("2d");
    context.setTransform(density, 0, 0, density, 0, 0);
    context.fillStyle = colours.panel;
    context.fillRect(0, 0, width, height);
    const scale = width / (this.to - this.from);
    context.font = "10px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = colours.faint;
    context.strokeStyle = colours.line;
    for (let i = 0; i < 4; i += 1) {
      const x = (width * i) / 4;
      context.strokeRect(x, 0, 0, height);
      context.fillText(microsText(this.from + (this.to - this.from) * (i / 4)), x + 4, AXIS / 2);
    }
    for (const event of events) {
      const x = (event.start - this.from) * scale;
      const length = Math.max(1, event.micros * scale);
      if (x + length < 0 || x > width) continue;
      context.fillStyle = COLOURS[event.colour % COLOURS.length];
      context.fillRect(x, AXIS + event.place * ROW + 1, length, ROW - 3);
      if (length < 30) continue;
      context.fillStyle = "#ffffff";
      const left = Math.max(0, x);
      const text = event.name.slice(0, Math.floor((Math.min(width, x + length) - left - 8) / 5.5));
      context.fillText(text, left + 4, AXIS + event.place * ROW + ROW / 2);
    }
    canvas.dataset.from = String(Math.round(this.from));
    canvas.dataset.to = String(Math.round(this.to));
  }
}

/** {device, rows, events} of each device; events get the row that they are drawn in, and the colour of their op. */
function byDevice(events) {
  const devices = new Map();
  const ops = new Map();
  for (const event of events) {
    if (!ops.has(event.op)) ops.set(event.op, ops.size);
    event.colour = ops.get(event.op);
    const device = devices.get(event.device) ?? { ends: [], events: [] };
    devices.set(event.device, device);
    let row = device.ends.findIndex((one) => one.row === event.row && one.end <= event.start);
    if (row < 0) row = device.ends.push({ row: event.row, end: 0 }) - 1;
    device.ends[row].end = event.start + event.micros;
    event.place = row;
    device.events.push(event);
  }
  return [...devices].map(([device, { ends, events: those }]) => ({ device, rows: ends.length, events: those }));
}

// Draws a laid out graph on a canvas: drag and wheel, or arrows, + and -, move it; a click, or Enter, chooses and unfolds.

import { element } from "./elements.js";
import { countText } from "./format.js";
import { folds } from "./graph_tree.js";

const NAMES = ["back", "panel", "text", "faint", "line", "link", "accent", "on-accent", "warn", "bad"];
const HEADER = 28;
const LEAST_READABLE = 0.45;
const MARKS = { feed: "→ fed", fetch: "fetched", target: "target" };

export class GraphCanvas {
  /**
   * `on` has choose(item or null), toggle(item), mark(item) → "feed", "fetch", "target" or undefined,
   * colour(item) → {fill, text} or null, and note(item) → a text below its name.
   */
  constructor(on) {
    this.on = on;
    this.canvas = element("canvas", { tabindex: 0, role: "application", "aria-label": "Graph: arrows move it, plus and minus change its size, 0 shows all, Enter unfolds what is chosen. The panel beside it finds nodes and lists what is in a group." });
    this.context = this.canvas.getContext("2d");
    this.boxes = []; // {item, x, y, width, height, open}, outer ones first
    this.byItem = new Map();
    this.lines = []; // {from, to, control, count, points, text}
    this.chosen = null;
    this.scale = 1;
    this.left = this.top = 0;
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.recolour = () => {
      const style = getComputedStyle(document.documentElement);
      this.colours = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
      this.mono = style.getPropertyValue("--mono");
      this.redraw();
    };
    this.dark.addEventListener("change", this.recolour);
    this.recolour();
    this.resizes = new ResizeObserver(() => this._resize());
    this.resizes.observe(this.canvas);
    this._listen();
  }

  close() {
    this.resizes.disconnect();
    this.dark.removeEventListener("change", this.recolour);
  }

  /** Takes a new layout; an item that was there stays where it is on the screen. */
  show(boxes, lines, still) {
    const before = still && this.byItem.get(still);
    const at = before && [before.x * this.scale + this.left, before.y * this.scale + this.top];
    this.boxes = boxes;
    this.lines = lines;
    this.byItem = new Map(boxes.map((box) => [box.item, box]));
    const after = still && this.byItem.get(still);
    if (at && after) {
      this.left = at[0] - after.x * this.scale;
      this.top = at[1] - after.y * this.scale;
    } else this._showBeginning();
    this.redraw();
  }

  /** Shows all, or the upper part of a graph that could not be read then. */
  _showBeginning() {
    this.showAll();
    if (!this.boxes.length || this.scale > LEAST_READABLE) return;
    const first = this.boxes.reduce((a, b) => (b.y < a.y ? b : a));
    this.scale = 0.8;
    this.left = this.canvas.clientWidth / 2 - this.scale * first.x;
    this.top = 24;
  }

  _resize() {
    const { width, height } = this.canvas.getBoundingClientRect();
    const density = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * density);
    this.canvas.height = Math.round(height * density);
    this.redraw();
  }

  // Moving

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
        this.zoom(distance(now) / Math.max(1, distance(last)), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
      } else this._move(now[0] - last[0], now[1] - last[1]);
      moved += Math.abs(now[0] - last[0]) + Math.abs(now[1] - last[1]);
      pointers.set(event.pointerId, now);
    });
    canvas.addEventListener("pointerup", (event) => {
      pointers.delete(event.pointerId);
      if (moved < 5) this._clicked(event);
    });
    canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("dblclick", (event) => {
      const found = this._at(event.offsetX, event.offsetY);
      if (found && !this._onSign(found, event) && folds(found)) this.on.toggle(found);
    });
    this._listenToKeys();
  }

  _listenToKeys() {
    const keys = {
      ArrowLeft: () => this._move(60, 0), ArrowRight: () => this._move(-60, 0), ArrowUp: () => this._move(0, 60), ArrowDown: () => this._move(0, -60),
      "+": () => this.zoom(1.3), "=": () => this.zoom(1.3), "-": () => this.zoom(1 / 1.3), 0: () => this.showAll(),
      Enter: () => this.chosen && folds(this.chosen) && this.on.toggle(this.chosen),
    };
    this.canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || !(event.key in keys)) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  _clicked(event) {
    const found = this._at(event.offsetX, event.offsetY);
    if (found && this._onSign(found, event)) this.on.toggle(found);
    else this.on.choose(found);
  }

  /** Whether a click was on the sign that folds and unfolds a box. */
  _onSign(found, event) {
    const box = this.byItem.get(found);
    return folds(found) && this.scale > LEAST_READABLE && (event.offsetX - this.left) / this.scale < box.x - box.width / 2 + 24 && (event.offsetY - this.top) / this.scale < box.y - box.height / 2 + HEADER;
  }

  showAll() {
    if (!this.boxes.length) return;
    const right = Math.max(...this.boxes.map((box) => box.x + box.width / 2));
    const bottom = Math.max(...this.boxes.map((box) => box.y + box.height / 2));
    const { width, height } = this.canvas.getBoundingClientRect();
    this.scale = Math.min(1.2, (width - 30) / right, (height - 30) / bottom);
    this.left = (width - this.scale * right) / 2;
    this.top = (height - this.scale * bottom) / 2;
    this.redraw();
  }

  /** Brings an item into the middle, large enough to be read. */
  goTo(one) {
    const box = this.byItem.get(one);
    if (!box) return;
    const { width, height } = this.canvas.getBoundingClientRect();
    this.scale = Math.min(Math.max(this.scale, 0.8), 1.2);
    this.left = width / 2 - this.scale * box.x;
    this.top = height / 2 - this.scale * box.y;
    this.redraw();
  }

  _move(x, y) {
    this.left += x;
    this.top += y;
    this.redraw();
  }

  zoom(factor, x = null, y = null) {
    const { width, height } = this.canvas.getBoundingClientRect();
    [x, y] = [x ?? width / 2, y ?? height / 2];
    const scale = Math.min(3, Math.max(0.005, this.scale * factor));
    this.left = x - ((x - this.left) * scale) / this.scale;
    this.top = y - ((y - this.top) * scale) / this.scale;
    this.scale = scale;
    this.redraw();
  }

  /** The innermost item at a place of the canvas. */
  _at(px, py) {
    const [x, y] = [(px - this.left) / this.scale, (py - this.top) / this.scale];
    const slack = 4 / this.scale;
    const hit = (box) => Math.abs(box.x - x) <= box.width / 2 + slack && Math.abs(box.y - y) <= box.height / 2 + slack;
    return this.boxes.findLast(hit)?.item ?? null;
  }

  // Drawing

  redraw() {
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
    context.setTransform(density * scale, 0, 0, density * scale, density * this.left, density * this.top);
    const seen = { left: -this.left / scale, right: (width - this.left) / scale, top: -this.top / scale, bottom: (height - this.top) / scale };
    const visible = this.boxes.filter((box) => box.x + box.width / 2 >= seen.left && box.x - box.width / 2 <= seen.right && box.y + box.height / 2 >= seen.top && box.y - box.height / 2 <= seen.bottom);
    for (const box of visible) if (box.open) this._drawOpen(box);
    this._drawLines(seen);
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const box of visible) if (!box.open) this._drawBox(box);
    canvas.dataset.boxes = String(this.boxes.length); // for tests and for whoever looks
  }

  _drawOpen(box) {
    const { context, colours } = this;
    const [left, top] = [box.x - box.width / 2, box.y - box.height / 2];
    context.lineWidth = box.item === this.chosen ? 2 : 1;
    context.strokeStyle = box.item === this.chosen ? colours.link : colours.line;
    context.fillStyle = colours.panel;
    context.globalAlpha = 0.6;
    context.fillRect(left, top, box.width, box.height);
    context.globalAlpha = 1;
    context.strokeRect(left, top, box.width, box.height);
    if (this.scale <= LEAST_READABLE / 1.5) return;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.font = `600 12px ${this.mono}`;
    context.fillStyle = colours.faint;
    context.fillText(`− ${box.text}`, left + 8, top + HEADER / 2, box.width - 16);
  }

  _drawLines(seen) {
    const { context, colours, chosen } = this;
    const paths = { plain: new Path2D(), control: new Path2D(), chosen: new Path2D() };
    const texts = [];
    for (const line of this.lines) {
      const { points } = line;
      const [first, last] = [points[0], points[points.length - 1]];
      if (Math.max(first.y, last.y) < seen.top || Math.min(first.y, last.y) > seen.bottom) continue;
      const path = line.from === chosen || line.to === chosen ? paths.chosen : line.control ? paths.control : paths.plain;
      drawLine(path, points);
      if (line.text && this.scale > 0.75) texts.push([line.text, points[Math.floor(points.length / 2)], first, last, points.length]);
    }
    context.lineWidth = Math.max(1, 0.5 / this.scale);
    context.strokeStyle = colours.faint;
    context.globalAlpha = this.scale < 0.3 ? 0.45 : 0.8;
    context.stroke(paths.plain);
    context.setLineDash([5, 4]);
    context.stroke(paths.control);
    context.setLineDash([]);
    context.globalAlpha = 1;
    context.lineWidth *= 2;
    context.strokeStyle = colours.link;
    context.stroke(paths.chosen);
    context.font = `9px ${this.mono}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillStyle = colours.faint;
    for (const [text, middle, first, last, count] of texts) {
      const at = count === 2 ? { x: (first.x + last.x) / 2, y: (first.y + last.y) / 2 } : middle;
      context.fillText(text, at.x + 4, at.y);
    }
  }

  _drawBox(box) {
    const { context, colours } = this;
    const { item, x, y, width, height } = box;
    const readable = this.scale > LEAST_READABLE;
    const chosen = item === this.chosen;
    const coloured = this.on.colour(item);
    const mark = this.on.mark(item);
    context.fillStyle = coloured?.fill ?? (readable ? colours.panel : colours.accent);
    const group = item.children.length > 0;
    if (group && readable) context.fillRect(x - width / 2 + 3, y - height / 2 + 3, width, height); // a pile of several
    context.fillRect(x - width / 2, y - height / 2, width, height);
    context.lineWidth = chosen || mark ? 2.5 : 1;
    context.strokeStyle = chosen ? colours.link : mark ? colours.warn : colours.faint;
    if (readable || chosen || mark) context.strokeRect(x - width / 2, y - height / 2, width, height);
    if (!readable) return;
    const [name, about] = coloured ? [coloured.text, coloured.text] : [colours.text, colours.faint];
    context.font = `${group ? "600 " : ""}12px ${this.mono}`;
    context.fillStyle = name;
    context.fillText(folds(item) ? `+ ${box.text}` : box.text, x, y - 7, width - 8);
    context.font = `10px ${this.mono}`;
    context.fillStyle = about;
    const note = this.on.note(item) ?? (group ? `${countText(item.size)} nodes` : item.node.op);
    context.fillText(mark ? `${note} · ${MARKS[mark]}` : note, x, y + 8, width - 8);
  }
}

/** A line through points: straight ends, curves between. */
function drawLine(path, points) {
  path.moveTo(points[0].x, points[0].y);
  if (points.length === 2) {
    const [{ x: x1, y: y1 }, { x: x2, y: y2 }] = points;
    const bend = Math.max(12, Math.abs(y2 - y1) / 2);
    path.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
    return;
  }
  for (let i = 1; i < points.length - 2; i += 1) {
    path.quadraticCurveTo(points[i].x, points[i].y, (points[i].x + points[i + 1].x) / 2, (points[i].y + points[i + 1].y) / 2);
  }
  const [before, last] = points.slice(-2);
  path.quadraticCurveTo(before.x, before.y, last.x, last.y);
}

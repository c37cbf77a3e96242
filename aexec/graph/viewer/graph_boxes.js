// The boxes and lines of a graph: what is laid out of its tree, and where the layout has put it.

import { shapeText } from "./format.js";
import { folds } from "./graph_tree.js";

const HEIGHT = 34;
const CHARACTER = 7.3; // the width of one, of 12 px, in a monospace font
const MOST_CHARACTERS = 30;

/** Lays out trees; of several asked for at once only the last is answered. */
export class Layouts {
  /** `worker` is sent {number, box}, and sends the same back with all places, as `graph_layers.js` computes them. */
  constructor(worker) {
    this.number = 0;
    this.worker = worker;
    this.worker.onmessage = ({ data }) => data.number === this.number && this.done(data.box);
    this.worker.onerror = () => this.failed();
  }

  close() {
    this.worker.terminate();
  }

  /** The {boxes, lines} of a tree as it is unfolded; never answers if it is asked again before. */
  layOut(tree) {
    this.number += 1;
    const shown = tree.shownEdges();
    const number = new Map(); // item → its place among its siblings
    const box = boxOf(tree.root, number);
    addEdges(box, shown, number, tree.root);
    return new Promise((done, failed) => {
      this.done = (placed) => done(placedTree(tree, placed, shown, number));
      this.failed = () => failed(new Error("The graph cannot be laid out."));
      this.worker.postMessage({ number: this.number, box });
    });
  }
}

const shortened = (text) => (text.length > MOST_CHARACTERS ? `…${text.slice(1 - MOST_CHARACTERS)}` : text);

function textOf(item) {
  return item.kind === "function" ? `function ${item.label}` : item.label;
}

function boxOf(item, number) {
  const text = shortened(textOf(item)) + (folds(item) ? "  +" : "");
  const width = Math.max(64, 16 + CHARACTER * Math.max(text.length, Math.min(MOST_CHARACTERS, item.node?.op.length ?? 0)));
  if (!item.open || !item.children.length) return { width, height: HEIGHT };
  item.children.forEach((child, i) => number.set(child, i));
  return { least: width, edges: [], children: item.children.map((child) => boxOf(child, number)) };
}

/** The items from the root to one. */
function path(item) {
  const found = [];
  for (let one = item; one; one = one.parent) found.unshift(one);
  return found;
}

/** Adds each edge to the innermost box that has both of its ends, between the children that they are in. */
function addEdges(box, shown, number, root) {
  const known = new Map(); // item → Set of "from to"
  for (const line of shown) {
    const [a, b] = [path(line.from), path(line.to)];
    let depth = 0;
    while (a[depth + 1] === b[depth + 1]) depth += 1;
    line.within = a[depth];
    line.between = [number.get(a[depth + 1]), number.get(b[depth + 1])];
    const key = line.between.join(" ");
    const seen = known.get(line.within) ?? new Map();
    known.set(line.within, seen);
    if (!seen.has(key)) seen.set(key, seen.size);
    line.place = seen.get(key);
  }
  fill(box, root, known);
}

function fill(box, item, known) {
  if (!box.children) return;
  box.edges = [...(known.get(item)?.keys() ?? [])].map((key) => key.split(" ").map(Number));
  box.children.forEach((child, i) => fill(child, item.children[i], known));
}

function placedTree(tree, placed, shown, number) {
  const boxes = [];
  const origins = new Map(); // item → where its box begins, and its placed box
  const walk = (item, box, left, top) => {
    origins.set(item, { left, top, box });
    box.children?.forEach((child, i) => {
      const inner = item.children[i];
      const open = Boolean(child.children);
      boxes.push({ item: inner, x: left + child.x, y: top + child.y, width: child.width, height: child.height, open, text: shortened(textOf(inner)) });
      walk(inner, child, left + child.x - child.width / 2, top + child.y - child.height / 2);
    });
  };
  walk(tree.root, placed, 0, 0);
  const byItem = new Map(boxes.map((box) => [box.item, box]));
  return { boxes, lines: shown.map((line) => drawnLine(line, byItem, origins, number)) };
}

/** Where a line goes: as the layout has led it, if both ends are children of the same box, else directly. */
function drawnLine(line, byItem, origins) {
  const { left, top, box } = origins.get(line.within);
  const [from, to] = [byItem.get(line.from), byItem.get(line.to)];
  const direct = line.from.parent === line.within && line.to.parent === line.within;
  const points = direct
    ? box.points[line.place].map(({ x, y }) => ({ x: x + left, y: y + top }))
    : [{ x: from.x, y: from.y + from.height / 2 }, { x: to.x, y: to.y - to.height / 2 }];
  return { from: line.from, to: line.to, control: line.control, count: line.count, points, text: lineText(line) };
}

function lineText({ count, control, edge }) {
  if (count > 1) return `${count} edges`;
  const output = control ? undefined : edge.from.node.outputs[edge.output];
  return output ? shapeText(output.shape) : "";
}

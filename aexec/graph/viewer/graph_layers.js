// Lays out boxes in layers, by dagre. A box is {width, height, children, edges}, edges as pairs of numbers of children; then
// each child has x and y, the place of its middle in its parent, each box its size, and each edge its points.

import { Graph, layout } from "./vendor/dagre.esm.js";

const HEADER = 28; // above the children of a box, for its name
const MARGIN = 14;
const GAP = 16;

/** Gives a box's children their places, and the box its size. */
export function place(box) {
  if (!box.children) return;
  box.children.forEach(place);
  const joined = new Set(box.edges.flat());
  const height = placeLayers(box, joined);
  const loose = box.children.filter((_, i) => !joined.has(i));
  if (loose.length) placeGrid(box, loose, height);
  box.height += HEADER;
  for (const child of box.children) child.y += HEADER;
  for (const points of box.points) for (const point of points) point.y += HEADER;
}

function placeLayers(box, joined) {
  box.points = [];
  [box.width, box.height] = [box.least, 2 * MARGIN];
  if (!joined.size) return MARGIN;
  const graph = new Graph();
  graph.setGraph({ ranksep: 34, nodesep: GAP, edgesep: 8, marginx: MARGIN, marginy: MARGIN });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const i of joined) graph.setNode(String(i), { width: box.children[i].width, height: box.children[i].height });
  for (const [from, to] of box.edges) graph.setEdge(String(from), String(to), {});
  layout(graph);
  for (const i of joined) Object.assign(box.children[i], { x: graph.node(String(i)).x, y: graph.node(String(i)).y });
  box.points = box.edges.map(([from, to]) => graph.edge(String(from), String(to)).points.map(({ x, y }) => ({ x, y })));
  box.width = Math.max(box.least, graph.graph().width);
  box.height = graph.graph().height;
  return box.height;
}

/** What no edge joins, in rows below the rest. */
function placeGrid(box, loose, top) {
  const wide = Math.max(box.width, Math.sqrt(loose.reduce((sum, child) => sum + (child.width + GAP) * (child.height + GAP), 0)) * 1.5);
  let [x, y, tallest, right] = [MARGIN, top, 0, box.width];
  for (const child of loose) {
    if (x > MARGIN && x + child.width + MARGIN > wide) [x, y, tallest] = [MARGIN, y + tallest + GAP, 0];
    Object.assign(child, { x: x + child.width / 2, y: y + child.height / 2 });
    x += child.width + GAP;
    tallest = Math.max(tallest, child.height);
    right = Math.max(right, x - GAP + MARGIN);
  }
  box.width = right;
  box.height = y + tallest + MARGIN;
}

// Lays out a graph in layers (after Sugiyama, Tagawa and Toda, 1981), in a worker: it gets {count, edges, widths}, edges
// as pairs of numbers of nodes, one after another, and answers {x, y}, the centres of the nodes.

const LAYER = 64; // from one layer to the next
const GAP = 18; // between two nodes of a layer
const SWEEPS = 12;

/** The edges without those that close a cycle, found by a search in depth. */
function acyclic(count, edges) {
  const after = lists(count, edges, 0);
  const colour = new Uint8Array(count); // 1: being visited, 2: visited
  const back = new Set();
  for (let root = 0; root < count; root += 1) {
    if (colour[root]) continue;
    const path = [[root, 0]];
    colour[root] = 1;
    while (path.length) {
      const top = path[path.length - 1];
      if (top[1] === after[top[0]].length) {
        colour[top[0]] = 2;
        path.pop();
        continue;
      }
      const edge = after[top[0]][top[1]];
      top[1] += 1;
      const next = edges[2 * edge + 1];
      if (colour[next] === 1) back.add(edge);
      else if (colour[next] === 0) {
        colour[next] = 1;
        path.push([next, 0]);
      }
    }
  }
  return Array.from({ length: edges.length / 2 }, (_, edge) => edge).filter((edge) => !back.has(edge));
}

/** For each node the numbers of the edges that begin (end = 0) or end (end = 1) there. */
function lists(count, edges, end, some = null) {
  const found = Array.from({ length: count }, () => []);
  const all = some ?? Array.from({ length: edges.length / 2 }, (_, edge) => edge);
  for (const edge of all) found[edges[2 * edge + end]].push(edge);
  return found;
}

/** The layer of each node: below all that it takes; what takes nothing stands just above what takes it. */
function layersOf(count, edges, kept) {
  const after = lists(count, edges, 0, kept);
  const waits = new Int32Array(count);
  for (const edge of kept) waits[edges[2 * edge + 1]] += 1;
  const sources = waits.map((n) => (n === 0 ? 1 : 0));
  const layer = new Int32Array(count);
  const ready = [];
  for (let node = 0; node < count; node += 1) if (!waits[node]) ready.push(node);
  const order = [];
  while (ready.length) {
    const node = ready.pop();
    order.push(node);
    for (const edge of after[node]) {
      const next = edges[2 * edge + 1];
      layer[next] = Math.max(layer[next], layer[node] + 1);
      waits[next] -= 1;
      if (!waits[next]) ready.push(next);
    }
  }
  for (const node of order) {
    if (sources[node] && after[node].length) layer[node] = Math.min(...after[node].map((edge) => layer[edges[2 * edge + 1]])) - 1;
  }
  return layer;
}

/** Layers as lists of nodes; one that is too wide becomes several, so that a fan of thousands can be looked at. */
function rowsOf(count, layer) {
  const rows = [];
  for (let node = 0; node < count; node += 1) (rows[layer[node]] ??= []).push(node);
  const most = Math.max(24, Math.ceil(2 * Math.sqrt(count)));
  return rows.filter((row) => row).flatMap((row) => Array.from({ length: Math.ceil(row.length / most) }, (_, i) => row.slice(i * most, (i + 1) * most)));
}

/** Places closest to `wanted` (in least squares) in this order, with room for the widths: pooled adjacent violators. */
function placed(row, wanted, widths) {
  const offsets = [];
  let offset = 0;
  row.forEach((node, i) => {
    if (i) offset += (widths[row[i - 1]] + widths[node]) / 2 + GAP;
    offsets.push(offset);
  });
  const blocks = []; // {sum, count}
  row.forEach((node, i) => {
    blocks.push({ sum: wanted[node] - offsets[i], count: 1 });
    while (blocks.length > 1) {
      const [a, b] = blocks.slice(-2);
      if (a.sum / a.count <= b.sum / b.count) break;
      blocks.splice(-2, 2, { sum: a.sum + b.sum, count: a.count + b.count });
    }
  });
  const x = [];
  for (const block of blocks) for (let i = 0; i < block.count; i += 1) x.push(block.sum / block.count + offsets[x.length]);
  return x;
}

function layout({ count, edges, widths }) {
  const kept = acyclic(count, edges);
  const rows = rowsOf(count, layersOf(count, edges, kept));
  const neighbours = Array.from({ length: count }, () => [[], []]);
  for (const edge of kept) {
    const [from, to] = [edges[2 * edge], edges[2 * edge + 1]];
    neighbours[to][0].push(from);
    neighbours[from][1].push(to);
  }
  const x = new Float64Array(count);
  for (const row of rows) {
    const zero = new Float64Array(count);
    placed(row, zero, widths).forEach((place, i) => (x[row[i]] = place));
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    const wanted = Float64Array.from(x);
    for (const row of down ? rows : [...rows].reverse()) {
      for (const node of row) {
        const others = neighbours[node][down ? 0 : 1];
        if (others.length) wanted[node] = others.reduce((sum, other) => sum + x[other], 0) / others.length;
      }
      // Towards the end the order stays, and only places change.
      if (sweep < SWEEPS - 2) row.sort((a, b) => wanted[a] - wanted[b]);
      placed(row, wanted, widths).forEach((place, i) => (x[row[i]] = place));
    }
  }
  const y = new Float64Array(count);
  rows.forEach((row, i) => row.forEach((node) => (y[node] = i * LAYER)));
  return { x, y };
}

if (typeof self !== "undefined" && "onmessage" in self) self.onmessage = (event) => self.postMessage(layout(event.data));

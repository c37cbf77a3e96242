// The timeline of a traced step: a bar for each node, in lanes of device and thread, and a table of the longest.

import { drawn, element } from "./elements.js";

const WIDTH = 1000;
const LANE = 22;
const LEFT = 4;
const MOST_BARS = 4000;
const MOST_ROWS = 40;

/** What happened when, in microseconds from the beginning. */
function events(stats) {
  const found = [];
  for (const device of stats.dev_stats ?? []) {
    for (const node of device.node_stats ?? []) {
      const start = Number(node.all_start_micros ?? 0) + Number(node.op_start_rel_micros ?? 0);
      const micros = Math.max(0, Number(node.op_end_rel_micros ?? node.all_end_rel_micros ?? 0) - Number(node.op_start_rel_micros ?? 0));
      found.push({ lane: `${device.device}, thread ${node.thread_id ?? 0}`, name: node.node_name, label: node.timeline_label ?? "", start, micros });
    }
  }
  const first = Math.min(...found.map((event) => event.start));
  for (const event of found) event.start -= first;
  return found.sort((a, b) => a.start - b.start);
}

/** Lanes, in each of which nothing happens at the same time. */
function lanes(found) {
  const rows = []; // {lane, end}
  for (const event of found) {
    let row = rows.findIndex((one) => one.lane === event.lane && one.end <= event.start);
    if (row < 0) row = rows.push({ lane: event.lane, end: 0 }) - 1;
    rows[row].end = event.start + event.micros;
    event.row = row;
  }
  const order = rows.map((row, i) => ({ ...row, i })).sort((a, b) => (a.lane < b.lane ? -1 : a.lane > b.lane ? 1 : a.i - b.i));
  const place = new Map(order.map((row, i) => [row.i, i]));
  for (const event of found) event.row = place.get(event.row);
  return order;
}

const microsText = (micros) => (micros >= 1e6 ? `${(micros / 1e6).toFixed(2)} s` : micros >= 1000 ? `${(micros / 1000).toFixed(2)} ms` : `${Math.round(micros)} µs`);

export function timeline(stats) {
  const found = events(stats);
  if (!found.length) return element("p", { class: "faint" }, "Nothing was traced.");
  const total = Math.max(1, ...found.map((event) => event.start + event.micros));
  const longest = [...found].sort((a, b) => b.micros - a.micros);
  const bars = longest.slice(0, MOST_BARS).sort((a, b) => a.start - b.start);
  const rows = lanes(bars);
  const height = 20 + rows.length * LANE;
  const scale = (WIDTH - 2 * LEFT) / total;
  const drawing = drawn("svg", { width: "100%", height, viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${found.length} nodes in ${microsText(total)}; the table below has the longest` });
  for (let i = 0; i <= 4; i += 1) {
    const x = LEFT + ((WIDTH - 2 * LEFT) * i) / 4;
    drawing.append(drawn("line", { x1: x, x2: x, y1: 0, y2: height }));
  }
  for (const event of bars) {
    drawing.append(drawn("rect", { class: "event", x: LEFT + event.start * scale, y: 18 + event.row * LANE, width: Math.max(1, event.micros * scale), height: LANE - 6, rx: 1 }, drawn("title", {}, `${event.name}: ${microsText(event.micros)}, after ${microsText(event.start)}\n${event.label}`)));
  }
  const table = element(
    "table", {},
    element("thead", {}, element("tr", {}, ...["Node", "Began after", "Took", "Where"].map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, ...longest.slice(0, MOST_ROWS).map((event) => element("tr", {}, element("th", { scope: "row", class: "mono" }, event.name), element("td", { class: "number" }, microsText(event.start)), element("td", { class: "number" }, microsText(event.micros)), element("td", {}, event.lane)))),
  );
  const about = `${found.length} nodes in ${microsText(total)}, on ${rows.length} ${rows.length === 1 ? "lane" : "lanes"}: ${[...new Set(rows.map((row) => row.lane))].slice(0, 6).join("; ")}`;
  return element("div", {}, element("p", { class: "faint" }, about), drawing, element("details", {}, element("summary", {}, "The longest as a table"), table));
}

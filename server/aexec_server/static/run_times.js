// Where the time of a traced run went: its phases as a bar, and what its kernels took by op and device.

import { element } from "./elements.js";
import { secondsText } from "./format.js";

const PHASES = { receiving: "receiving the request", in_line: "in line", preparing: "reading and planning", running: "the step", encoding: "writing the answer" };
const MOST_OPS = 12;

export function runTimes(trace) {
  const parts = Object.entries(PHASES).map(([name, text]) => ({ name, text, seconds: trace.phases[name] ?? 0 }));
  const total = parts.reduce((sum, part) => sum + part.seconds, 0);
  const bar = element("div", { class: "phases", role: "img", "aria-label": parts.map((part) => `${part.text} ${secondsText(part.seconds)}`).join(", ") }, ...parts.filter((part) => part.seconds > 0).map((part) => {
    const piece = element("span", { class: `phase ${part.name}`, title: `${part.text}: ${secondsText(part.seconds)}` });
    piece.style.flexGrow = String(Math.max(part.seconds / total, 0.004));
    return piece;
  }));
  const key = element("ul", { class: "legend" }, ...parts.map((part) => element("li", {}, element("span", { class: `swatch phase ${part.name}` }), `${part.text} ${secondsText(part.seconds)}`)));
  const transfers = trace.ops.filter((op) => op.transfer).reduce((sum, op) => sum + op.seconds, 0);
  const compute = trace.ops.filter((op) => !op.transfer).reduce((sum, op) => sum + op.seconds, 0);
  const shown = trace.ops.slice(0, MOST_OPS);
  const left = trace.ops.length - shown.length;
  return element(
    "div", {}, bar, key,
    element("p", { class: "faint" }, `Kernels computed for ${secondsText(compute)}, transfers took ${secondsText(transfers)}; kernels on several threads or devices may do so at once.`),
    element("div", { class: "wide" }, element(
      "table", {},
      element("thead", {}, element("tr", {}, ...["Op", "Device", "Calls", "Time"].map((text, i) => element("th", { scope: "col", class: i > 1 ? "number" : "" }, text)))),
      element("tbody", {}, ...shown.map((op) => element("tr", {}, element("th", { scope: "row", class: "mono" }, op.op), element("td", {}, op.device), element("td", { class: "number" }, String(op.calls)), element("td", { class: "number" }, secondsText(op.seconds))))),
    )),
    left > 0 ? element("p", { class: "faint" }, `and ${left} more`) : "",
  );
}

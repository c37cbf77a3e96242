// What the panel beside a graph says of a node or group, with links to its neighbours.

import { element } from "./elements.js";
import { secondsText, shapeText } from "./format.js";
import { folds, leavesOf, sourceOf } from "./graph_tree.js";

const MOST_LINKS = 40;
const MOST_OPS = 8;

const fact = (name, text) => (text === "" || text === undefined ? [] : [element("dt", {}, name), element("dd", { class: "mono" }, text)]);
const button = (text, action) => element("button", { type: "button", onclick: action }, text);

/** A list of at most forty links under a heading; `links` are [item or undefined, text]. */
function linkList(heading, links, goTo) {
  if (!links.length) return [];
  const shown = links.slice(0, MOST_LINKS).map(([item, text]) => (item ? element("li", {}, button(text, () => goTo(item))) : element("li", { class: "mono" }, text)));
  if (links.length > MOST_LINKS) shown.push(element("li", { class: "faint" }, `and ${links.length - MOST_LINKS} more`));
  return [element("h4", {}, heading), element("ul", {}, ...shown)];
}

/** What is said of a group. */
export function groupDetails(item, { goTo, toggle, time }) {
  const ops = new Map();
  for (const leaf of leavesOf(item)) ops.set(leaf.node.op, (ops.get(leaf.node.op) ?? 0) + 1);
  const most = [...ops].sort((a, b) => b[1] - a[1]).slice(0, MOST_OPS);
  return [
    element("h3", { class: "mono" }, item.label),
    element("p", {}, button(item.open ? "Fold it" : "Unfold it", () => toggle(item))),
    element("dl", {}, ...fact("Nodes", String(item.size)), ...fact("Time", time?.(item)), ...fact("Most frequent ops", most.map(([op, count]) => `${op} ${count}`).join(", "))),
    ...linkList("In it", item.children.map((child) => [child, child.children.length ? `${child.label} (${child.size})` : child.label]), goTo),
  ];
}

/** What is said of a node; `attrs` is an element for its attrs. */
export function nodeDetails(item, { goTo, toggle, time, ran, choose, value }, attrs) {
  const { node } = item;
  const own = choose && !item.id.includes(">"); // a tensor in a function cannot be named in a run
  const outputs = node.outputs.flatMap((output, k) => fact(node.outputs.length > 1 ? `Output ${k}` : "Output", `${output.datatype}, ${shapeText(output.shape)}`));
  const actions = [
    ...(folds(item) ? [button(item.open ? "Fold its functions" : "Unfold its functions", () => toggle(item))] : []),
    ...(own && node.outputs.length ? [button("Fetch it", () => choose("fetch", item)), button("Feed it", () => choose("feed", item))] : []),
    ...(own ? [button("Run it", () => choose("target", item))] : []),
    ...(own && node.outputs.length && value ? [button("Its value", () => value(item))] : []),
  ];
  return [
    element("h3", { class: "mono" }, node.name),
    element("p", { class: "row" }, ...actions),
    element("dl", {}, ...fact("Op", node.op), ...fact("Device", ran?.(item) || node.device), ...fact("Time", time?.(item)), ...outputs, ...fact("Calls", node.calls?.join(", "))),
    ...linkList("Takes", node.inputs.map((input) => [item.siblings.get(sourceOf(input)), input]), goTo),
    ...linkList("Taken by", [...new Set(item.users)].map((user) => [user, user.node.name]), goTo),
    attrs,
  ];
}

/** The attrs of a node as facts. */
export const attrFacts = (attrs) => Object.entries(attrs).flatMap(([name, text]) => fact(name, text));

export const timeText = (seconds) => (seconds ? secondsText(seconds) : undefined);

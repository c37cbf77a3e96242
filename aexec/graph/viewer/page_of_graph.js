// A page with nothing but a graph, whose data is in the page: what notebooks show, and `.html` files.

import { element } from "./elements.js";
import { GraphView } from "./graph_view.js";
import { place } from "./graph_layers.js";

const graph = JSON.parse(document.getElementById("graph").textContent);

/** Lays out where the page is, as a file can have no worker; answers later, as a worker does. */
const worker = {
  postMessage(data) {
    setTimeout(() => {
      place(data.box);
      this.onmessage({ data });
    });
  },
  terminate() {},
};

/** A node with its attrs, as a server describes it. */
async function more(name, ofFunction) {
  const node = (ofFunction ? graph.functions[ofFunction] : graph.nodes).find((one) => one.name === name);
  if (!node.attrs) throw new Error("left out of pages of graphs with more than 2000 nodes");
  return { nodes: [node] };
}

const view = new GraphView(graph, { worker, more, nodesOf: async (name) => ({ nodes: graph.functions[name] ?? [] }), mark: () => undefined, value: () => undefined });
document.getElementById("viewer").append(element("h1", { class: "unseen" }, "Graph"), view.element);

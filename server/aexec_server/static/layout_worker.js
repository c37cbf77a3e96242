// The worker that lays out graphs: it gets {number, box}, and answers the same with all places.

import { place } from "./graph_layers.js";

self.onmessage = ({ data }) => {
  place(data.box);
  self.postMessage(data);
};

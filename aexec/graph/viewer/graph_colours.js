// Colours of a graph's boxes: by device, or by the time that nodes took in a traced run.

import { secondsText } from "./format.js";
import { leavesOf } from "./graph_tree.js";

// Dark enough for white text, told apart by those who see no red or green: after Okabe and Ito.
const DEVICES = ["#00577f", "#8f3b00", "#00654a", "#7a3d64", "#5b5b00", "#4a4a4a"];
const HEAT = [[52, 78, 120], [96, 62, 118], [150, 40, 78], [170, 30, 20]]; // from little to much

/** Devices of nodes, in a run or as asked for. */
export class DeviceColours {
  constructor(ran) {
    this.ran = ran; // name of node → device, of a traced run, or null
    this.known = new Map();
  }

  of(item) {
    const devices = new Set();
    for (const leaf of leavesOf(item)) devices.add(this.ran?.get(leaf.node.name) || leaf.node.device || "");
    if (devices.size !== 1) return null;
    const [device] = devices;
    if (!device) return null;
    if (!this.known.has(device)) this.known.set(device, DEVICES[this.known.size % DEVICES.length]);
    return { fill: this.known.get(device), text: "#ffffff" };
  }

  note() {
    return undefined;
  }

  /** [colour, text] of each device that was drawn. */
  legend() {
    return [...this.known].map(([device, colour]) => [colour, device.replace(/^.*(?=device:)/, "")]);
  }
}

/** Times of nodes in a traced run; groups have the sum of what is in them. */
export class TimeColours {
  constructor(seconds) {
    this.seconds = seconds; // name of node → seconds
    this.sums = new Map();
    this.most = Math.max(1e-9, ...seconds.values());
  }

  sum(item) {
    let sum = this.sums.get(item);
    if (sum === undefined) {
      sum = 0;
      for (const leaf of leavesOf(item)) sum += this.seconds.get(leaf.node.name) ?? 0;
      this.sums.set(item, sum);
    }
    return sum;
  }

  of(item) {
    const sum = this.sum(item);
    return sum ? { fill: heat(Math.sqrt(Math.min(1, sum / this.most))), text: "#ffffff" } : null;
  }

  note(item) {
    const sum = this.sum(item);
    return sum ? secondsText(sum) : undefined;
  }

  legend() {
    return [[heat(0), "little"], [heat(1), `${secondsText(this.most)} and more`]];
  }
}

function heat(share) {
  const place = share * (HEAT.length - 1);
  const i = Math.min(HEAT.length - 2, Math.floor(place));
  return `rgb(${HEAT[i].map((from, k) => Math.round(from + (HEAT[i + 1][k] - from) * (place - i))).join(" ")})`;
}

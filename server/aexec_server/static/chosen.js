// What a run of a session, by the names of tensors, feeds, fetches and runs: chosen in the graph or written by the person.

/** The tensor that a text names: `y` is `y:0`. */
const canonical = (name) => (/:\d+$/.test(name) ? name : `${name}:0`);

export class Chosen extends EventTarget {
  constructor() {
    super();
    this.feeds = new Map(); // tensor → the text of its value
    this.fetches = new Set();
    this.targets = new Set();
  }

  /** Adds a node to what is fed, fetched or run; takes it away if it is there. */
  toggle(kind, name) {
    const tensor = canonical(name);
    if (kind === "feed") this.feeds.delete(tensor) || this.feeds.set(tensor, "0");
    else if (kind === "fetch") this.fetches.delete(tensor) || this.fetches.add(tensor);
    else this.targets.delete(name) || this.targets.add(name);
    this.dispatchEvent(new Event("change"));
  }

  /** How a node is used: "feed", "fetch", "target", or undefined. */
  useOf(node) {
    const uses = (tensors) => [...tensors].some((tensor) => tensor.replace(/:\d+$/, "") === node);
    if (uses(this.feeds.keys())) return "feed";
    if (uses(this.fetches)) return "fetch";
    return this.targets.has(node) ? "target" : undefined;
  }

  get empty() {
    return !this.feeds.size && !this.fetches.size && !this.targets.size;
  }
}

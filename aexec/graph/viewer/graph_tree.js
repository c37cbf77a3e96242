// A graph as a tree that folds: name scopes, functions that nodes call, and bundles of siblings where there are too many.
//
// An item is {id, kind, label, parent, children, node, size}: kind is "node", "scope", "bundle" or "function", size the
// number of nodes in it. That of a node has `users`, and `siblings`: name → item, of the same graph or function. Edges are between nodes; what is drawn of them depends on what is folded.

const MOST_SIBLINGS = 48;
const FEWEST_BUNDLED = 16;

/** The node that an input names: `node`, `node:1`, `node:output:0` or `^node`. */
export const sourceOf = (input) => input.replace(/^\^/, "").split(":")[0];

/** Which of its node's outputs an input names. */
const outputOf = (input) => Number(/:(\d+)$/.exec(input)?.[1] ?? 0);

export class GraphTree {
  /** `nodes` as `…/nodes` describes them. */
  constructor(nodes) {
    this.root = item("root", "scope", "", null);
    this.root.open = true;
    this.items = new Map();
    this.edges = []; // {from, to, control, output}, items of nodes
    this._add(nodes, this.root, "");
    this._openLone();
  }

  /** Unfolds a group that stands alone: all of the graph is in it. */
  _openLone() {
    for (let one = this.root; one.children.length === 1 && one.children[0].children.length; one = one.children[0]) one.children[0].open = true;
  }

  /** Adds the nodes of the functions that a node calls, as its children; `functions` are [name, nodes]. */
  addFunctions(caller, functions) {
    for (const [name, nodes] of functions) {
      const inside = item(`${caller.id}>${name}`, "function", name, caller);
      this.items.set(inside.id, inside);
      inside.open = true;
      caller.children.push(inside);
      this._add(nodes, inside, `${inside.id}>`);
    }
  }

  _add(nodes, root, prefix) {
    const scopes = new Map([["", root]]);
    const leaves = new Map();
    const scopeOf = (path) => {
      let found = scopes.get(path);
      if (!found) {
        const cut = path.lastIndexOf("/");
        const parent = scopeOf(cut < 0 ? "" : path.slice(0, cut));
        found = item(`${prefix}${path}/`, "scope", path.slice(cut + 1), parent);
        parent.children.push(found);
        scopes.set(path, found);
      }
      return found;
    };
    nodes.forEach((node, order) => {
      const cut = node.name.lastIndexOf("/");
      const parent = scopeOf(cut < 0 ? "" : node.name.slice(0, cut));
      const leaf = Object.assign(item(`${prefix}${node.name}`, "node", node.name.slice(cut + 1), parent), { node, order, users: [], siblings: leaves });
      parent.children.push(leaf);
      leaves.set(node.name, leaf);
    });
    for (const leaf of leaves.values()) {
      for (const input of leaf.node.inputs) {
        const from = leaves.get(sourceOf(input));
        if (!from) continue;
        const edge = { from, to: leaf, control: input.startsWith("^"), output: outputOf(input) };
        this.edges.push(edge);
        from.users.push(leaf);
      }
    }
    tidy(root);
    this._number(root);
  }

  _number(parent) {
    for (const child of parent.children) {
      this.items.set(child.id, child);
      this._number(child);
    }
  }

  /** What is drawn of an item: the outermost of its ancestors that is folded, or itself. */
  shown(leaf) {
    let seen = leaf;
    for (let above = leaf.parent; above; above = above.parent) if (!above.open) seen = above;
    return seen;
  }

  /** Unfolds all that an item is in. */
  reveal(one) {
    for (let above = one.parent; above; above = above.parent) above.open = true;
  }

  foldAll() {
    for (const one of this.items.values()) one.open = one.kind === "function";
    this._openLone();
  }

  /** The edges between what is drawn: [{from, to, control, count, edge}], of which none leads from an item to itself. */
  shownEdges() {
    const shown = new Map();
    const seen = (leaf) => {
      if (!shown.has(leaf)) shown.set(leaf, this.shown(leaf));
      return shown.get(leaf);
    };
    const found = new Map();
    for (const edge of this.edges) {
      const [from, to] = [seen(edge.from), seen(edge.to)];
      if (from === to || inside(from, to) || inside(to, from)) continue;
      const key = `${from.id}\n${to.id}`;
      const known = found.get(key);
      if (known) {
        known.count += 1;
        known.control &&= edge.control;
      } else found.set(key, { from, to, control: edge.control, count: 1, edge });
    }
    return [...found.values()];
  }
}

function item(id, kind, label, parent) {
  return { id, kind, label, parent, children: [], node: null, open: false, size: 0 };
}

/** True if `one` is somewhere in `other`. */
function inside(one, other) {
  for (let above = one.parent; above; above = above.parent) if (above === other) return true;
  return false;
}

/** Whether there is anything to unfold. */
export const folds = (one) => one.children.length > 0 || Boolean(one.node?.calls?.length);

/** The nodes in an item. */
export function* leavesOf(one) {
  if (one.node) yield one;
  for (const child of one.children) yield* leavesOf(child);
}

/** Counts what is in each item, replaces scopes with a single child by it, and bundles siblings that are too many. */
function tidy(parent) {
  parent.children = parent.children.map((child) => {
    tidy(child);
    if (child.kind !== "scope" || child.children.length !== 1) return child;
    const [only] = child.children;
    return Object.assign(only, { label: `${child.label}/${only.label}`, parent });
  });
  parent.size = (parent.node ? 1 : 0) + parent.children.reduce((sum, child) => sum + child.size, 0);
  parent.order ??= Math.min(...parent.children.map((child) => child.order));
  if (parent.children.length > MOST_SIBLINGS) parent.children = bundled(parent, parent.children);
}

/** Bundles of siblings, in the order of the graph's nodes, which producers usually come first in. */
function bundled(parent, children) {
  const sorted = [...children].sort((a, b) => a.order - b.order);
  const length = Math.max(FEWEST_BUNDLED, Math.ceil(sorted.length / MOST_SIBLINGS));
  return Array.from({ length: Math.ceil(sorted.length / length) }, (_, i) => {
    const part = sorted.slice(i * length, (i + 1) * length);
    const [first, last] = [part[0], part[part.length - 1]];
    const made = item(`${parent.id}#${first.id}`, "bundle", `${first.label} … ${last.label}`, parent);
    for (const child of part) child.parent = made;
    made.children = part.length > MOST_SIBLINGS ? bundled(made, part) : part;
    made.size = part.reduce((sum, child) => sum + child.size, 0);
    made.order = first.order;
    return made;
  });
}

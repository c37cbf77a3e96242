// Making and changing parts of the page. Texts are only ever set as text.

const SVG = "http://www.w3.org/2000/svg";

/** The element of the page with this id. */
export const byId = (id) => document.getElementById(id);

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** An element; attributes whose names begin with `on` are listeners, children are elements or texts. */
export const element = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);

/** The same of a drawing. */
export const drawn = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

/** Sets a text if it is another, so that nothing is read out twice and no selection is lost. */
export function setText(node, text) {
  if (node.textContent !== String(text)) node.textContent = text;
}

/**
 * Makes the children of `parent` those of `items`: `make` makes one, `update` is told of each, keys tell which is which.
 * Children that stay are the same elements, so that the keyboard's focus stays too.
 */
export function keyed(parent, items, key, make, update) {
  const there = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let last = null;
  for (const item of items) {
    const name = String(key(item));
    let child = there.get(name);
    if (child === undefined) {
      child = make(item);
      child.dataset.key = name;
    }
    there.delete(name);
    const place = last === null ? parent.firstElementChild : last.nextElementSibling;
    if (place !== child) parent.insertBefore(child, place);
    update(child, item);
    last = child;
  }
  for (const child of there.values()) child.remove();
}

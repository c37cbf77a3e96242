// Tensors' values in fields of a form, and in answers.

import { element } from "./elements.js";
import { shapeText } from "./format.js";

const MOST_TEXT = 20000;
const MOST_EXAMPLES = 64;

/** A field for the value of a tensor: `about` is {name, datatype, shape}. */
export function valueField(id, about, text, onchange = () => {}) {
  const what = about.datatype === undefined && about.shape === undefined ? "" : `${about.datatype ?? "any type"}, ${shapeText(about.shape)}`;
  const area = element("textarea", { id, rows: 1, spellcheck: "false", "data-name": about.name, "data-type": about.datatype ?? "", onchange: () => onchange(area.value) });
  area.value = text ?? exampleText(about);
  return element("div", { class: "field" }, element("label", { for: id }, about.name, " ", element("small", {}, what)), area);
}

/** Zeros in the shape of an input, as far as it fits a line or two. */
function exampleText({ datatype, shape }) {
  const one = datatype === "BYTES" ? "text" : datatype === "BOOL" ? false : 0;
  const sizes = (shape ?? []).map((size) => (size < 0 ? 1 : size));
  if (sizes.reduce((a, b) => a * b, 1) > MOST_EXAMPLES) return "";
  const fill = (axis) => (axis === sizes.length ? one : Array.from({ length: sizes[axis] }, () => fill(axis + 1)));
  return JSON.stringify(fill(0));
}

/** The values of the fields in `parent`, by name; throws an Error at the first that is none. */
export function readValues(parent) {
  const values = {};
  for (const field of parent.querySelectorAll("textarea[data-name]")) {
    field.removeAttribute("aria-invalid");
    try {
      values[field.dataset.name] = JSON.parse(field.value);
    } catch (error) {
      if (field.dataset.type === "BYTES") values[field.dataset.name] = field.value;
      else {
        field.setAttribute("aria-invalid", "true");
        field.focus();
        throw new Error(`${field.dataset.name} is no JSON value: ${error.message}`);
      }
    }
  }
  return values;
}

/** An output as text: its name, type, shape and value. */
export function outputText({ name, dtype, shape, value }) {
  return `${name}: ${dtype}, ${shapeText(shape)}\n${shortened(JSON.stringify(value))}`;
}

/** The outputs of an answer as text. */
export const answerText = (answer) => (typeof answer === "string" ? shortened(answer) : Object.entries(answer.outputs).map(([name, value]) => outputText({ name, dtype: answer.dtypes[name], shape: answer.shapes[name], value })).join("\n\n"));

const shortened = (text) => (text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT)}\n… ${text.length - MOST_TEXT} characters more` : text);

/** Names in a text, divided by commas or white space. */
export const namesIn = (text) => text.split(/[\s,]+/).filter(Boolean);

// The form that runs a session: by a signature, or by the names of tensors, which may be chosen in the graph.

import { element, setText } from "./elements.js";
import { namesIn, readValues, valueField } from "./values.js";

const BY_TENSORS = "\n"; // no signature has this name

export class RunForm {
  /** `document` describes the session, `chosen` what is chosen of its graph; `start(body)` runs it. */
  constructor(document, chosen, start) {
    this.signatures = signaturesOf(document);
    this.chosen = chosen;
    this.start = start;
    this.inputs = element("div");
    this.error = element("p", { class: "error", role: "alert" });
    const names = Object.keys(this.signatures);
    this.choice = element("select", { id: "signature", onchange: () => this._show() }, ...names.map((name) => element("option", { value: name }, name || "all placeholders")), element("option", { value: BY_TENSORS }, "names of tensors"));
    if (names.includes("serving_default")) this.choice.value = "serving_default";
    this.traced = element("input", { id: "traced", type: "checkbox" });
    this.element = element(
      "form", { onsubmit: (event) => this._submit(event) },
      element("div", { class: "field" }, element("label", { for: "signature" }, "Signature"), this.choice),
      this.inputs,
      element("div", { class: "row" }, element("label", { class: "check" }, this.traced, "Trace it"), element("button", { class: "primary" }, "Run")),
      this.error,
    );
    chosen.addEventListener("change", () => {
      this.choice.value = BY_TENSORS;
      this._show();
    });
    this._show();
  }

  _show() {
    setText(this.error, "");
    if (this.choice.value === BY_TENSORS) this.inputs.replaceChildren(...this._tensorFields());
    else this.inputs.replaceChildren(...this.signatures[this.choice.value].inputs.map((input, i) => valueField(`input-${i}`, input)));
  }

  _tensorFields() {
    const { chosen } = this;
    const names = (id, label, set, placeholder) => {
      const field = element("textarea", { id, rows: 1, spellcheck: "false", placeholder, onchange: () => {
        set.clear();
        for (const name of namesIn(field.value)) set.add(name);
      } });
      field.value = [...set].join(" ");
      return element("div", { class: "field" }, element("label", { for: id }, label), field);
    };
    const feeds = [...chosen.feeds].map(([name, text], i) => {
      const field = valueField(`feed-${i}`, { name }, text, (value) => chosen.feeds.set(name, value));
      field.append(element("button", { type: "button", class: "remove", "aria-label": `Do not feed ${name}`, onclick: () => chosen.toggle("feed", name) }, "×"));
      return field;
    });
    const added = element("input", { id: "added-feed", autocomplete: "off", spellcheck: "false", placeholder: "x:0" });
    const add = element("button", { type: "button", onclick: () => namesIn(added.value).forEach((name) => chosen.feeds.has(name) || chosen.toggle("feed", name)) }, "Feed it");
    return [
      ...feeds,
      element("div", { class: "field" }, element("label", { for: "added-feed" }, "Feed another tensor"), element("span", { class: "inline" }, added, add)),
      names("fetches", "Fetches", chosen.fetches, "y:0 loss:0"),
      names("targets", "Targets", chosen.targets, "nodes that are run without a result"),
    ];
  }

  /** The body of the request as the form has it; throws an Error if a field has no value. */
  body() {
    const values = readValues(this.inputs);
    const body = this.traced.checked ? { options: { trace_level: "FULL_TRACE" } } : {};
    if (this.choice.value !== BY_TENSORS) {
      if (this.choice.value) body.signature = this.choice.value;
      return { ...body, inputs: values };
    }
    return { ...body, feeds: values, fetches: [...this.chosen.fetches], targets: [...this.chosen.targets] };
  }

  /** The feeds by tensor of a body of this form, for another run with the same values. */
  feedsOf(body) {
    if (body.feeds) return body.feeds;
    const { inputs } = this.signatures[body.signature ?? ""] ?? { inputs: [] };
    return Object.fromEntries(inputs.map((input) => [input.tensor ?? `${input.name}:0`, body.inputs[input.name]]));
  }

  _submit(event) {
    event.preventDefault();
    setText(this.error, "");
    try {
      this.start(this.body());
    } catch (error) {
      setText(this.error, error.message);
    }
  }
}

/** Signatures by name; of a graph without any, the one that it has all the same, under "". */
function signaturesOf({ signatures, inputs, outputs }) {
  if (Object.keys(signatures).length || inputs === undefined) return signatures;
  return { "": { inputs, outputs } };
}

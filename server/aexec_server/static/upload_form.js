// Uploading a graph, as a session of one's own or, where clients may change models, as a model.

import { element, setText } from "./elements.js";
import { call, errorText, request } from "./server.js";

const MOST_BYTES = 512 * 2 ** 20;

export class UploadForm {
  /** `opened(handle, isModel)` is called with the new session or model. */
  constructor(opened) {
    this.opened = opened;
    this.file = element("input", { id: "upload-file", type: "file", accept: ".pb,.graphdef,application/octet-stream" });
    this.name = element("input", { id: "upload-name", autocomplete: "off", spellcheck: "false", placeholder: "may be left out" });
    this.kind = element("select", { id: "upload-kind" }, element("option", { value: "session" }, "session of my own"), element("option", { value: "model" }, "model"));
    this.told = element("p", { class: "faint", role: "status" });
    this.error = element("p", { class: "error", role: "alert" });
    const row = (id, label, input) => element("div", {}, element("label", { for: id }, label), input);
    this.element = element(
      "details", { class: "upload" }, element("summary", {}, "Upload a graph"),
      element("form", { onsubmit: (event) => this._send(event) }, row("upload-file", "GraphDef file", this.file), row("upload-kind", "As a", this.kind), row("upload-name", "Name", this.name), element("button", {}, "Upload"), this.told, this.error),
    );
  }

  /** Whether this caller may load models. */
  allow(models) {
    this.kind.options[1].disabled = !models;
    this.kind.options[1].textContent = models ? "model" : "model (not allowed here)";
    if (!models) this.kind.value = "session";
  }

  async _send(event) {
    event.preventDefault();
    setText(this.error, "");
    const [file] = this.file.files;
    try {
      if (!file) throw new Error("Choose a file first.");
      if (file.size > MOST_BYTES) throw new Error("The file is larger than 512 MB.");
      setText(this.told, "Uploading …");
      const handle = await (this.kind.value === "model" ? this._model(file) : this._session(file));
      setText(this.told, `${handle} is open.`);
      this.opened(handle, this.kind.value === "model");
    } catch (error) {
      setText(this.told, "");
      setText(this.error, errorText(error));
    }
  }

  async _session(file) {
    const name = this.name.value.trim();
    const path = name ? `/v1/sessions?name=${encodeURIComponent(name)}` : "/v1/sessions";
    const response = await request("POST", path, { body: file, headers: { "Content-Type": "application/octet-stream" } });
    return (await response.json()).session_handle;
  }

  async _model(file) {
    const name = this.name.value.trim();
    if (!name) throw new Error("A model needs a name.");
    const content = await base64Of(file);
    await call("POST", `/v2/repository/models/${encodeURIComponent(name)}/load`, { parameters: { "file:1/model.graphdef": content } });
    return name;
  }
}

async function base64Of(file) {
  const url = await new Promise((done, failed) => {
    const reader = Object.assign(new FileReader(), { onload: () => done(reader.result), onerror: () => failed(reader.error) });
    reader.readAsDataURL(file);
  });
  return url.slice(url.indexOf(",") + 1);
}

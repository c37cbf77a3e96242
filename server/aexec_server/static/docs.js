// Lets the reader of /docs send the call that is open, with the example's values, and shows what the server answers.
const Nothing = 204;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

let described;
function description() {
  described ??= fetch("/openapi.json").then((answer) => answer.json());
  return described;
}

function operationOf(whole, id) {
  for (const [path, item] of Object.entries(whole.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      if (operation.operationId === id) return { path, method: method.toUpperCase(), operation };
    }
  }
  return null;
}

// A row with a label and a field; returns the field.
function field(rows, text, made) {
  rows.append(element("label", {}, element("span", {}, text), made));
  return made;
}

function addressOf(path, parameters) {
  let target = path;
  const query = new URLSearchParams();
  const headers = new Headers();
  for (const { name, where, input } of parameters) {
    const value = input.value.trim();
    if (where === "path") target = target.replace(`{${name}}`, encodeURIComponent(value));
    else if (value && where === "query") query.set(name, value);
    else if (value && where === "header") headers.set(name, value);
  }
  return { target: query.size ? `${target}?${query}` : target, headers };
}

function shown(text, type) {
  if (!type.includes("json") || type.includes("ndjson")) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// Reads an answer as it comes, since some never end.
async function show(answer, output) {
  const type = answer.headers.get("Content-Type") ?? "";
  if (answer.status === Nothing || !answer.body) return;
  const decoder = new TextDecoder();
  const reader = answer.body.getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    text += decoder.decode(value, { stream: true });
    output.textContent = text;
  }
  output.textContent = shown(text, type);
}

function tryIt({ path, method, operation }) {
  const form = element("div", { class: "try", role: "group", "aria-label": `Try ${method} ${path}` });
  const parameters = (operation.parameters ?? []).map(({ name, in: where, example }) => {
    const input = element("input", { spellcheck: "false", autocomplete: "off" });
    if (where === "path" && example !== undefined) input.value = String(example);
    return { name, where, input: field(form, `${name} (${where})`, input) };
  });
  const json = operation.requestBody?.content["application/json"];
  let body = null;
  if (json) {
    body = field(form, "body", element("textarea", { rows: "6", spellcheck: "false" }));
    if (json.example !== undefined) body.value = JSON.stringify(json.example, null, 2);
  }
  const token = field(form, "token", element("input", { type: "password", autocomplete: "off" }));
  const send = element("button", { type: "button" }, "Send");
  const stop = element("button", { type: "button", disabled: "" }, "Stop");
  const status = element("p", { class: "status", role: "status" });
  const output = element("pre", { tabindex: "0", "aria-label": "Answer" });
  form.append(send, stop, status, output);
  let sent = null;
  stop.addEventListener("click", () => sent?.abort());
  send.addEventListener("click", async () => {
    sent = new AbortController();
    send.disabled = true;
    stop.disabled = false;
    status.textContent = "…";
    output.textContent = "";
    const { target, headers } = addressOf(path, parameters);
    if (token.value) headers.set("Authorization", `Bearer ${token.value.trim()}`);
    if (body?.value) headers.set("Content-Type", "application/json");
    const began = performance.now();
    try {
      const answer = await fetch(target, { method, headers, body: body?.value || undefined, signal: sent.signal });
      status.textContent = `${answer.status} ${answer.statusText}, after ${Math.round(performance.now() - began)} ms`;
      await show(answer, output);
    } catch (error) {
      status.textContent = error.name === "AbortError" ? `${status.textContent}; stopped` : String(error);
    } finally {
      send.disabled = false;
      stop.disabled = true;
    }
  });
  return form;
}

for (const call of document.querySelectorAll("details.call")) {
  call.addEventListener("toggle", async () => {
    if (!call.open || call.dataset.tried) return;
    call.dataset.tried = "1";
    const found = operationOf(await description(), call.id);
    if (found) call.append(element("h4", {}, "Try it"), tryIt(found));
  });
}

// Asking the server: one call, with the token that the person gave.

const TOKEN = "aexec-token";
const JSON_STYLE = "nan=string; int64=string"; // as JSON.parse can read it

let token = sessionStorage.getItem(TOKEN) ?? "";

export const currentToken = () => token;

export function setToken(text) {
  token = text;
  sessionStorage.setItem(TOKEN, text);
}

/** An answer of the server that is an error. */
export class Refused extends Error {
  constructor(status, body) {
    super(body?.error ?? `The server answered with status ${status}`);
    this.status = status;
    this.code = body?.code;
    this.node = body?.node;
  }
}

/** The response to a request; throws `Refused`. A body that is no Blob is sent as JSON. */
export async function request(method, path, { body, accept = "application/json", signal, headers = {} } = {}) {
  const sent = { Accept: `${accept}; ${JSON_STYLE}`, ...headers };
  if (token) sent.Authorization = `Bearer ${token}`;
  if (body !== undefined && !(body instanceof Blob)) {
    sent["Content-Type"] = "application/json";
    body = JSON.stringify(body);
  }
  const response = await fetch(path, { method, headers: sent, body, signal });
  if (!response.ok) throw new Refused(response.status, jsonOf(await response.text()));
  return response;
}

/** The answer as JSON; its text if it is none. */
export async function call(method, path, body) {
  const text = await (await request(method, path, { body })).text();
  return jsonOf(text) ?? text;
}

function jsonOf(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

export const sessionPath = (handle) => `/v1/sessions/${encodeURIComponent(handle)}`;
export const runPath = (handle, run) => `${sessionPath(handle)}/runs/${encodeURIComponent(run)}`;
export const queuePath = (handle, queue) => `${sessionPath(handle)}/queues/${encodeURIComponent(queue)}`;

/** What an error says to a person. */
export function errorText({ code, message, node }) {
  const where = node && !message.includes(node) ? ` (node ${node})` : "";
  return `${code ? `${code}: ` : ""}${message}${where}`;
}

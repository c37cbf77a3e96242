// Server-sent events by fetch, which unlike EventSource can send a token: html.spec.whatwg.org/multipage/server-sent-events.html

import { Refused, request } from "./server.js";

const SHORTEST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15000;

/** Calls `on(kind, object)` for each event of a response, until it ends. */
export async function readEvents(response, on) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
      if (fields.data !== undefined) on(fields.event, JSON.parse(fields.data));
    }
  }
}

/**
 * Follows a stream until `stop`; opens it anew when it ends. `on` gets the events, `state` is told "open", or an error
 * whenever there is none to follow; after an error of the server that will not pass, "closed" is the last event.
 */
export class Following {
  constructor(path, on, state = () => {}) {
    this.path = path;
    this.on = on;
    this.state = state;
    this.stopped = false;
    this._follow();
  }

  stop() {
    this.stopped = true;
    this.abort?.abort();
  }

  async _follow() {
    let wait = SHORTEST_WAIT_MS;
    while (!this.stopped) {
      this.abort = new AbortController();
      try {
        const response = await request("GET", this.path, { accept: "text/event-stream", signal: this.abort.signal });
        this.state("open");
        wait = SHORTEST_WAIT_MS;
        await readEvents(response, (kind, object) => this.stopped || this.on(kind, object));
      } catch (error) {
        if (this.stopped) return;
        this.state(error);
        if (error instanceof Refused && error.status === 404) {
          this.on("closed", {});
          return;
        }
      }
      await new Promise((done) => setTimeout(done, wait));
      wait = Math.min(2 * wait, LONGEST_WAIT_MS);
    }
  }
}

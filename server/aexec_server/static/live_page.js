// The server as it is, and was in the last hour: figures, charts, memory, runs in flight, errors.

import { Chart } from "./chart.js";
import { element, keyed, setText } from "./elements.js";
import { ageText, bytesText, countText, secondsText } from "./format.js";
import { call } from "./server.js";

const MOST_POINTS = 720;
const MOST_ERRORS = 12;
const PERCENTILES = ["p50", "p95", "p99"];
const percentText = (share) => `${countText(100 * share)} %`;

export class LivePage {
  /** `runs` is the table of runs in flight, shared with the other pages. */
  constructor(runs) {
    this.points = [];
    this.limits = {};
    this.clientCodes = new Set();
    this.tiles = element("dl", { class: "tiles" });
    this.charts = makeCharts();
    this.codes = element("tbody");
    this.memory = element("tbody");
    this.errors = element("tbody");
    this.noErrors = element("p", { class: "faint" }, "None.");
    this.figures = element(
      "div", {}, this.tiles,
      element("div", { class: "charts" }, ...Object.values(this.charts).map((chart) => chart.element)),
      element("div", { class: "two" }, section("Memory", table(["Kind", "Filled", "Bytes"], this.memory)), section("Answers of the last hour", table(["Code", "Whose mistake", "Runs"], this.codes))),
    );
    this.latest = section("Latest errors", table(["Time", "Request", "Code", "Node"], this.errors, "cards"), this.noErrors);
    this.denied = element("p", { class: "notice", hidden: true }, "The figures of the server are for tokens with the scope admin.");
    this.runs = runs;
    this.place = element("div");
    this.element = element("section", { "aria-labelledby": "live-heading" }, element("h2", { id: "live-heading", tabindex: -1 }, "Live"), this.denied, this.figures, this.place, this.latest);
  }

  /** Shows the page, with the table of runs, which other pages show too. */
  show() {
    this.element.hidden = false;
    this.place.append(this.runs.element);
    return this.begin();
  }

  /** Asks for the history, and shows it. */
  async begin() {
    try {
      const history = await call("GET", "/v1/status/history");
      this.clientCodes = new Set(history.client_codes);
      this.limits = history.limits;
      this.points = history.points;
    } catch {
      this.points = []; // it is for others, or the server does not answer: the events say so
    }
    this._draw();
  }

  /** Shows or hides what only some may see. */
  allow(seesStatus) {
    this.denied.hidden = seesStatus;
    this.figures.hidden = this.latest.hidden = !seesStatus;
  }

  addPoint({ point, limits }) {
    if (this.points.length && this.points.at(-1).time >= point.time) return;
    this.points = [...this.points, point].slice(-MOST_POINTS);
    this.limits = limits;
    this._draw();
  }

  _draw() {
    if (this.element.hidden || !this.element.isConnected) return;
    const { points, charts } = this;
    const times = points.map((point) => point.time);
    const of = (get) => points.map(get);
    const rate = (keep) => of((point) => Object.entries(point.codes).reduce((sum, [code, count]) => sum + (keep(code) ? count : 0), 0) / point.seconds);
    const isClients = (code) => this.clientCodes.has(code);
    charts.rate.show([times, rate(() => true)]);
    charts.errors.show([times, rate((code) => code !== "OK" && isClients(code)), rate((code) => code !== "OK" && !isClients(code))]);
    for (const [name, key] of [["latency", "latency"], ["line", "in_line"], ["lag", "lag"]]) {
      charts[name].show([times, ...PERCENTILES.map((which) => of((point) => point[key]?.[which] ?? null))]);
    }
    charts.flight.show([times, of((point) => point.runs_in_flight), of((point) => point.runs_waiting)]);
    charts.batches.show([times, of((point) => point.batches?.rows ?? null)]);
    this._drawNamed(charts.memory, times, "memory", (point, kind) => (this.limits[kind] ? (point.memory[kind] ?? 0) / this.limits[kind] : null), (kind) => this.limits[kind]);
    this._drawNamed(charts.queues, times, "queues", (point, name) => point.queues[name] ?? null, () => true);
    this._drawMemory();
    this._drawCodes();
  }

  _drawNamed(chart, times, key, value, keep) {
    const names = [...new Set(this.points.flatMap((point) => Object.keys(point[key])))].filter(keep).sort();
    chart.show([times, ...names.map((name) => this.points.map((point) => value(point, name)))], names);
  }

  _drawMemory() {
    const latest = this.points.at(-1)?.memory ?? {};
    const kinds = Object.keys(latest).sort().map((kind) => ({ kind, bytes: latest[kind], limit: this.limits[kind] }));
    keyed(this.memory, kinds, (row) => row.kind, (row) => element("tr", {}, element("th", { scope: "row" }, row.kind), element("td", {}, element("meter", { min: 0, max: 1, high: 0.9, "aria-label": `How full ${row.kind} is` })), element("td", { class: "number" })), (made, row) => {
      made.querySelector("meter").hidden = !row.limit;
      made.querySelector("meter").value = row.limit ? row.bytes / row.limit : 0;
      setText(made.lastElementChild, row.limit ? `${bytesText(row.bytes)} of ${bytesText(row.limit)}` : bytesText(row.bytes));
    });
  }

  _drawCodes() {
    const counts = new Map();
    for (const point of this.points) for (const [code, count] of Object.entries(point.codes)) counts.set(code, (counts.get(code) ?? 0) + count);
    const rows = [...counts].sort((a, b) => b[1] - a[1]).map(([code, count]) => ({ code, count, whose: code === "OK" ? "" : this.clientCodes.has(code) ? "the client's" : "the server's" }));
    keyed(this.codes, rows, (row) => row.code, (row) => element("tr", {}, element("th", { scope: "row" }, row.code), element("td", {}, row.whose), element("td", { class: "number" })), (made, row) => setText(made.lastElementChild, row.count));
  }

  showStatus(status) {
    const limit = status.tensor_bytes_limit;
    const tiles = [
      ["Runs in flight", status.runs_in_flight],
      ["Runs", status.runs],
      ["Errors", status.errors],
      ["Sessions", status.sessions],
      [limit === null ? "Tensors" : `Tensors of ${bytesText(limit)}`, bytesText(status.tensor_bytes)],
      [status.host_count ? `Running, ${status.host_count} processes` : "Running", ageText(status.uptime_s)],
    ];
    keyed(this.tiles, tiles, ([name]) => name.split(" of ")[0], () => element("div", { class: "tile" }, element("dt"), element("dd")), (made, [name, text]) => {
      setText(made.firstElementChild, name);
      setText(made.lastElementChild, text);
    });
    this._showErrors(status.recent_errors);
  }

  _showErrors(errors) {
    this.noErrors.hidden = errors.length > 0;
    const rows = errors.slice(-MOST_ERRORS).reverse().map((error, i) => ({ ...error, key: `${error.time} ${error.path} ${i}` }));
    keyed(this.errors, rows, (error) => error.key, (error) => {
      const when = new Date(1000 * error.time);
      return element(
        "tr", {},
        element("td", {}, element("time", { datetime: when.toISOString() }, when.toLocaleTimeString())),
        element("td", { class: "mono", "data-label": "Request" }, `${error.method} ${error.path}`),
        element("td", { "data-label": "Code" }, `${error.status} ${error.code}`),
        element("td", { class: "mono", "data-label": "Node" }, error.node === null ? "" : error.op === null ? error.node : `${error.node} (${error.op})`),
      );
    }, () => {});
  }
}

function makeCharts() {
  const rate = (value) => `${countText(value)}/s`;
  return {
    rate: new Chart("Runs per second", ["runs"], rate),
    latency: new Chart("Latency", PERCENTILES, secondsText),
    line: new Chart("Time in line", PERCENTILES, secondsText),
    errors: new Chart("Errors per second", ["clients' mistakes", "the server's"], rate),
    flight: new Chart("Runs in flight", ["in flight", "in line"], countText),
    lag: new Chart("Lag of the event loop", PERCENTILES, secondsText),
    memory: new Chart("Memory, of its limits", [], percentText),
    batches: new Chart("Rows of a batch", ["mean"], countText),
    queues: new Chart("Elements in queues", [], countText),
  };
}

function section(heading, ...children) {
  return element("section", {}, element("h3", {}, heading), ...children);
}

function table(heads, body, kind = "") {
  return element("div", { class: "wide" }, element("table", { class: kind }, element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { scope: "col", class: text === "Bytes" || text === "Runs" ? "number" : "" }, text)))), body));
}

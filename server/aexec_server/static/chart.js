// A chart over the last hour, drawn by uPlot, which `vendor/uplot.min.js` defines.

import { element } from "./elements.js";

const HEIGHT = 150;
const COLOURS = { light: ["#0a6b5d", "#8a5300", "#b3261e", "#0a58b8", "#7a3d64", "#586173", "#5b5b00", "#1c2330"], dark: ["#4fc3ae", "#f0b45a", "#ff8a80", "#7fb4ff", "#e0a0c8", "#9ba6b8", "#d0d060", "#e4e8ef"] };
const dark = matchMedia("(prefers-color-scheme: dark)");
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export class Chart {
  /** `series` are names; `text(value)` is how a value is written. */
  constructor(title, series, text) {
    this.title = title;
    this.series = series;
    this.text = text;
    this.data = [[], ...series.map(() => [])];
    this.zoomed = false; // the person has chosen a time: new points do not change what is shown
    this.body = element("div", { ondblclick: () => (this.zoomed = false) });
    this.latest = element("p", { class: "unseen" });
    this.element = element("figure", { class: "chart", "aria-label": title }, element("figcaption", {}, title), this.body, this.latest);
    this.resizes = new ResizeObserver(() => this.plot?.setSize(this._size()));
    this.resizes.observe(this.body);
    this.redraw = () => this._make();
    dark.addEventListener("change", this.redraw);
  }

  close() {
    this.resizes.disconnect();
    dark.removeEventListener("change", this.redraw);
    this.plot?.destroy();
  }

  _size() {
    return { width: Math.max(200, this.body.clientWidth), height: HEIGHT };
  }

  _make() {
    if (!globalThis.uPlot) return; // the script has failed: the figures below are there all the same
    this.plot?.destroy();
    this.zoomed = false;
    const colours = COLOURS[dark.matches ? "dark" : "light"];
    const line = { stroke: () => style("--line"), width: 1 };
    const axis = { stroke: () => style("--faint"), grid: line, ticks: line, font: "11px system-ui, sans-serif" };
    const options = {
      ...this._size(),
      hooks: { setSelect: [() => (this.zoomed = true)] },
      cursor: { sync: { key: "live" }, points: { size: 5 } },
      legend: { live: true },
      scales: { y: { range: (_, least, most) => [0, most > 0 ? 1.1 * most : 1] } },
      axes: [{ ...axis, space: 60 }, { ...axis, size: 62, values: (_, ticks) => ticks.map((tick) => this.text(tick)) }],
      series: [{}, ...this.series.map((label, i) => ({ label, stroke: colours[i % colours.length], width: 1.5, spanGaps: false, points: { show: false }, value: (_, value) => (value === null || value === undefined ? "–" : this.text(value)) }))],
    };
    this.plot = new globalThis.uPlot(options, this.data, this.body);
  }

  /** Shows `columns`: times in seconds, and a list of values for each series, null where there is none. */
  show(columns, series = this.series) {
    const same = series.join("\n") === this.series.join("\n");
    this.series = series;
    this.data = columns;
    if (this.plot && same) this.plot.setData(columns, !this.zoomed);
    else this._make();
    const last = columns[0].length - 1;
    if (last >= 0) this.plot?.setLegend({ idx: last }, false); // the values of now, until a place is pointed at
    this.latest.textContent = last < 0 ? "No figures so far" : `Now: ${series.map((name, i) => `${name} ${columns[i + 1][last] === null ? "–" : this.text(columns[i + 1][last])}`).join(", ") || "nothing"}`;
  }
}

// Numbers, shapes and durations as text.

/** 1234567 as "1.2 MB". */
export function bytesText(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  while (bytes >= 1000 && i < units.length - 1) {
    bytes /= 1000;
    i += 1;
  }
  return `${i && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[i]}`;
}

/** The sizes of a shape: "2 × ?", "scalar", "any shape". */
export function shapeText(shape) {
  if (!shape) return "any shape";
  return shape.length ? shape.map((size) => (size < 0 ? "?" : size)).join(" × ") : "scalar";
}

/** 0.0123 as "12.3 ms". */
export function secondsText(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds === 0) return "0";
  if (seconds < 0.001) return `${Number((1e6 * seconds).toPrecision(3))} µs`;
  if (seconds < 1) return `${Number((1000 * seconds).toPrecision(3))} ms`;
  return `${Number(seconds.toPrecision(3))} s`;
}

/** How long something has gone on. */
export function ageText(seconds) {
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h`;
}

/** 1234.5 as "1235", 1.25 as "1.3". */
export const countText = (count) => (count >= 10 || Number.isInteger(count) ? String(Math.round(count)) : count.toFixed(1));

// A traced run, from its trace in Chrome's form: what happened when, and the sums by node, op and device.

const TRANSFER = /send|recv|copy|memcpy/i;

/**
 * {events, total, phases, seconds, devices, ops}: events are {name, op, device, row, start, micros, about}, in
 * microseconds from the beginning; seconds and devices are by name of node; ops is a list of {op, device, seconds, calls,
 * transfer}, the largest first.
 */
export function readTrace(trace) {
  const names = headings(trace.traceEvents);
  const events = [];
  for (const event of trace.traceEvents) {
    if (event.ph !== "X" || !event.args?.op || event.args.name === "_SOURCE") continue;
    const { name, op, where, self_us: self, waited_us: waited, bytes } = event.args;
    events.push({
      name, op, device: names.processes.get(event.pid) ?? "", row: names.rows.get(`${event.pid} ${event.tid}`) ?? String(event.tid),
      start: event.ts, micros: event.dur, self: self ?? event.dur, about: [where, waited ? `waited ${microsText(waited)}` : "", bytes ? `${bytes} bytes` : ""].filter(Boolean).join(", "),
    });
  }
  const first = Math.min(...events.map((event) => event.start));
  for (const event of events) event.start -= first;
  events.sort((a, b) => a.start - b.start);
  const total = Math.max(1, ...events.map((event) => event.start + event.micros));
  return { events, total, phases: trace.phases ?? {}, ...sums(events) };
}

function headings(events) {
  const processes = new Map();
  const rows = new Map();
  for (const { ph, name, pid, tid, args } of events) {
    if (ph !== "M") continue;
    if (name === "process_name") processes.set(pid, args.name.replace(/ Compute$/, "").replace(/^.*(?=device:)/, ""));
    if (name === "thread_name") rows.set(`${pid} ${tid}`, args.name);
  }
  return { processes, rows };
}

function sums(events) {
  const seconds = new Map();
  const devices = new Map();
  const byOp = new Map();
  for (const event of events) {
    seconds.set(event.name, (seconds.get(event.name) ?? 0) + event.self / 1e6);
    devices.set(event.name, event.device);
    const key = `${event.op} ${event.device}`;
    const known = byOp.get(key) ?? { op: event.op, device: event.device, seconds: 0, calls: 0, transfer: TRANSFER.test(event.op) };
    known.seconds += event.self / 1e6;
    known.calls += 1;
    byOp.set(key, known);
  }
  return { seconds, devices, ops: [...byOp.values()].sort((a, b) => b.seconds - a.seconds) };
}

export const microsText = (micros) => (micros >= 1e6 ? `${(micros / 1e6).toFixed(2)} s` : micros >= 1000 ? `${(micros / 1000).toFixed(2)} ms` : `${Number(micros.toPrecision(3))} µs`);

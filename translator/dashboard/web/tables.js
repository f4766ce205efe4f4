// The tables of models, upstreams, routes, listeners, processes and errors: their columns, and their rows from
// the entries of the server.

import { at, el } from "./dom.js";
import { bytes, clock, count, milliseconds, number, percent, span } from "./format.js";
import { Table } from "./table.js";

const TONES = {
  READY: "good", "in use": "good", closed: "good", LOADING: "warn", UNLOADING: "warn", "not ready": "warn",
  "half-open": "warn", UNAVAILABLE: "bad", ejected: "bad", open: "bad",
};
const sum = (values) => Object.values(values).reduce((total, value) => total + value, 0);
const ordinal = { numeric: true, text: count };
const fault = { ...ordinal, tone: (value) => (value ? "bad" : "") };
const state = { state: true, tone: (value) => TONES[value] ?? "" };
const time = { numeric: true, text: milliseconds };
const size = { numeric: true, text: bytes };
const column = (name, term, value, more = {}) => ({ name, term, value, ...more });
const field = (name, term, key, more) => column(name, term, (row) => row[key], more);

function modelTable(choose) {
  const pick = (value, row) => el("button", { type: "button", class: "link", onclick: () => choose(row.model) }, value);
  return new Table(
    "models",
    [
      field("Model", "model", "model", { cell: pick }),
      field("Version", "version", "version"),
      field("Runs on", "runs", "runs"),
      field("State", "state", "state", state),
      field("Requests", "total", "requests", ordinal),
      field("Failed", "failed", "failed", fault),
      field("Refused", "refused", "refused", fault),
      field("Waiting", "waiting", "waiting", ordinal),
      field("Sequences", "sequences", "sequences", ordinal),
      field("Mean", "mean", "mean", time),
      field("p50", "p50", "p50", time),
      field("p99", "p99", "p99", time),
      field("Batch", "batch", "batch", { numeric: true, text: number }),
      field("Cache hits", "cache", "hits", ordinal),
      field("Reason", "reason", "reason"),
    ],
    { empty: "No model is configured.", key: (row) => `${row.model}\n${row.version}` },
  );
}

function modelRows(entries) {
  const rows = [];
  for (const [name, entry] of entries.models) {
    const versions = entry.versions.length ? entry.versions : [{ version: "", state: entry.state, reason: entry.reason }];
    for (const version of versions) {
      rows.push({
        model: name, version: version.version, runs: entry.runs, state: version.state,
        requests: version.requests, failed: version.failures && sum(version.failures), waiting: version.waiting, refused: version.refused,
        sequences: version.sequences, mean: version.latency_mean_ms, p50: version.latency_ms?.["0.5"],
        p99: version.latency_ms?.["0.99"], batch: version.batch_size_mean, hits: version.cache_hits,
        reason: version.reason || entry.reason,
      });
    }
  }
  return rows;
}

const upstreamTable = () =>
  new Table(
    "upstreams",
    [
      field("Upstream", "upstream", "name"),
      field("Server", "server", "url", { mono: true }),
      field("State", "state", "state", state),
      field("Breaker", "breaker", "breaker", state),
      field("Weight", "weight", "weight", { numeric: true, text: number }),
      field("Zone", "zone", "zone"),
      field("Outstanding", "outstanding", "outstanding", ordinal),
      field("Requests", "total", "requests", ordinal),
      field("Failures", "failed", "failures", fault),
      field("Ejections", "ejections", "ejections", fault),
      field("Last failure", "reason", "last_failure"),
    ],
    { empty: "No upstream is configured.", key: (row) => `${row.name}\n${row.url}` },
  );

const upstreamRows = ({ upstreams = {} }) =>
  Object.entries(upstreams).flatMap(([name, each]) => each.servers.map((server) => ({ name, ...server })));

const rayTable = () =>
  new Table(
    "ray",
    [
      field("Model", "model", "model"),
      field("State", "state", "state", { text: (value) => value, tone: (value) => (value === "RUNNING" ? "good" : "warn") }),
      field("Replica", "replica", "replica", { mono: true }),
      field("Node", "node", "address", { mono: true }),
      field("Pid", "pid", "process", { numeric: true, text: (value) => String(value || "–") }),
      field("Reason", "reason", "reason"),
    ],
    { empty: "No model runs on Ray.", key: (row) => `${row.model}\n${row.replica}` },
  );

const rayRows = ({ ray }) =>
  Object.entries(ray?.models ?? {}).flatMap(([model, each]) =>
    (each.replicas.length ? each.replicas : [{ state: "UNAVAILABLE", replica: "", address: "", process: 0 }]).map((replica) => ({ model, reason: each.reason, ...replica })),
  );

const nodeTable = () =>
  new Table(
    "nodes",
    [
      field("Node", "node", "address", { mono: true }),
      field("State", "alive", "alive", { text: (value) => (value ? "alive" : "dead"), tone: (value) => (value ? "good" : "bad") }),
      field("CPUs", "cpus", "cpus", { numeric: true, text: number }),
      field("GPUs", "gpus", "gpus", { numeric: true, text: number }),
      field("Id", "node", "id", { mono: true }),
    ],
    { empty: "No Ray cluster is connected.", key: (row) => row.id, filter: false },
  );

const nodeRows = ({ ray }) => [...(ray?.nodes ?? [])];

const routeTable = () =>
  new Table(
    "routes",
    [
      field("Route", "route", "route", { text: String }),
      field("Matches", "match", "match"),
      field("Requests", "total", "requests", ordinal),
      field("To", "to", "to"),
      field("Fallback", "fallback", "fallback"),
      field("Fallbacks", "fallback", "fallbacks", fault),
    ],
    { empty: "No route is configured: requests go to the model that they name.", key: (row) => row.route, filter: false },
  );

const words = (value) => (typeof value === "object" && value !== null ? Object.entries(value).map(([name, each]) => `${name} ${words(each)}`).join(" and ") : String(value));

const routeRows = ({ routes = [] }) =>
  [...routes].map((each) => ({
    ...each,
    match: Object.entries(each.match).map(([name, value]) => `${name} ${words(value)}`).join(", ") || "everything",
    to: each.to.map((part) => `${part.model} (${percent(part.requests, each.requests)})`).join(", "),
  }));

const listenerTable = () =>
  new Table(
    "listeners",
    [
      field("Address", "listener", "address", { mono: true }),
      field("Transport", "transport", "transport"),
      field("Dialect", "dialect", "dialect"),
      field("Requests", "total", "requests", ordinal),
      field("In flight", "inflight", "in_flight", ordinal),
      field("Streams", "streams", "streams", ordinal),
      field("Failed", "failed", "failed", fault),
      field("Shed", "shed", "shed", fault),
      field("Cancelled", "cancelled", "cancelled", ordinal),
      field("Received", "received", "received_bytes", size),
      field("Sent", "sent", "sent_bytes", size),
    ],
    { empty: "No listener is bound yet.", key: (row) => `${row.address}\n${row.dialect}`, filter: false },
  );

const listenerRows = ({ server }) =>
  (server?.listeners ?? []).flatMap(({ address, transport, dialects }) =>
    Object.entries(dialects).map(([dialect, counted]) => ({
      address, transport, dialect, ...counted,
      failed: counted.requests - (counted.codes.OK ?? 0) - counted.shed - counted.cancelled,
    })),
  );

const processTable = () =>
  new Table(
    "processes",
    [
      field("Process", "process", "name"),
      field("State", "state", "state", state),
      field("Pid", "pid", "pid", { numeric: true, text: (value) => String(value ?? "–") }),
      field("Up for", "uptime", "uptime_secs", { numeric: true, text: span }),
      field("Restarts", "restarts", "restarts", fault),
      field("Answers in", "answer", "answer_ms", time),
      field("Silent for", "silent", "silent_secs", { numeric: true, text: (value) => (value === undefined ? "–" : `${number(value)} s`) }),
      field("Connections", "connections", "connections", ordinal),
    ],
    { empty: "The server is one process.", key: (row) => row.name, filter: false },
  );

const processRows = ({ processes = {} }) =>
  Object.entries(processes).map(([name, each]) => ({ name, state: each.ready ? "READY" : "UNAVAILABLE", ...each }));

const errorTable = () =>
  new Table(
    "errors",
    [
      field("Time", "when", "time", { text: clock }),
      field("Code", "code", "code", { code: true, tone: () => "bad" }),
      column("Error", "error", (row) => row.error ?? ""),
      column("Model", "model", (row) => row.routed_to ?? row.model ?? ""),
      column("Dialect", "dialect", (row) => row.dialect ?? ""),
      field("Listener", "listener", "listener", { mono: true }),
      column("Trace id", "trace", (row) => row.trace_id ?? "", { mono: true }),
    ],
    { empty: "No request has failed.", key: (row) => `${row.time}\n${row.number}\n${row.listener}`, sort: { column: 0, down: true }, page: 10 },
  );

const errorRows = ({ errors }) => errors?.errors ?? [];

/** All tables; `choose` is called with the name of a model. `show(entries)` of the result fills them. */
export function makeTables(choose) {
  const tables = [
    [modelTable(choose), modelRows],
    [upstreamTable(), upstreamRows],
    [routeTable(), routeRows],
    [listenerTable(), listenerRows],
    [processTable(), processRows],
    [errorTable(), errorRows],
    [rayTable(), rayRows],
    [nodeTable(), nodeRows],
  ];
  const show = (entries) => {
    for (const id of ["ray", "nodes"]) at(id).hidden = !entries.ray;
    tables.forEach(([table, rows]) => table.show(rows(entries)));
  };
  return { show };
}

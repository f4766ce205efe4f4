// What is seen first: the condition with its reasons, and the numbers of now.

import { at, el, term, write } from "./dom.js";
import { count, milliseconds, number, percent, span } from "./format.js";

const TONES = { ready: "good", degraded: "warn", "not ready": "bad" };
const WORDS = { ready: "Ready", degraded: "Degraded", "not ready": "Not ready" };

const TILES = [
  ["requests", "Requests/s", "requests"],
  ["failures", "Failures", "failures"],
  ["p95", "Latency, p95", "p95"],
  ["inflight", "In flight", "inflight"],
  ["waiting", "Waiting", "waiting"],
  ["streams", "Streams", "streams"],
  ["sequences", "Sequences", "sequences"],
];

export class Overview {
  constructor(selection) {
    this.selection = selection;
    this.values = new Map();
    for (const [name, text, word] of TILES) {
      const value = el("dd", {}, "–");
      this.values.set(name, value);
      at("numbers").append(el("div", {}, el("dt", {}, term(text, word)), value));
    }
    this.filters();
  }

  /** The chips of what is selected. */
  filters() {
    const chips = this.selection.filters().map(({ kind, text }) =>
      el("button", { type: "button", "aria-label": `Remove the filter ${text}`, onclick: () => this.selection.set(kind, null) }, `${text} ✕`),
    );
    at("filters").replaceChildren(...chips);
  }

  condition({ condition, server }) {
    const { state, reasons } = condition;
    document.title = `${server.name}: ${WORDS[state]}`;
    write(at("name"), server.name);
    write(at("condition"), WORDS[state]);
    at("condition").className = `pill ${TONES[state]}`;
    const banner = at("reasons");
    banner.hidden = !reasons.length;
    banner.className = `banner ${TONES[state]}`;
    const text = JSON.stringify(reasons);
    if (banner.dataset.text !== text) {
      banner.dataset.text = text;
      banner.replaceChildren(el("strong", {}, WORDS[state]), el("ul", {}, ...reasons.map((each) => el("li", {}, each))));
    }
    write(at("facts"), `Version ${server.version} · ${server.id} · up for ${span(server.uptime_secs)}`);
  }

  entries(entries) {
    this.condition(entries);
    const counted = entries.server.listeners.flatMap((each) => Object.values(each.dialects));
    const total = (name) => counted.reduce((sum, each) => sum + (each[name] ?? 0), 0);
    this.set("inflight", count(total("in_flight")));
    this.set("streams", count(total("streams")));
    let sequences = 0;
    for (const entry of entries.models.values()) for (const version of entry.versions) sequences += version.sequences ?? 0;
    this.set("sequences", count(sequences));
  }

  latest(values) {
    this.set("requests", number(values.requests_per_sec));
    this.set("waiting", count(values.waiting));
    this.set("p95", milliseconds(values.p95_ms));
  }

  ways(ways) {
    const chosen = ways.filter((way) => this.selection.matches(way));
    const sum = (name) => chosen.reduce((total, way) => total + way[name], 0);
    const failed = sum("failed");
    this.set("failures", count(failed), `${percent(failed, sum("requests"))} of ${count(sum("requests"))}`, failed ? "bad" : "");
  }

  set(name, text, note = "", tone = "") {
    const place = this.values.get(name);
    const now = `${text} ${note}`;
    if (place.dataset.now === now) return;
    place.dataset.now = now;
    place.className = tone;
    place.replaceChildren(text, ...(note ? [el("small", {}, note)] : []));
  }
}

// Mirrors: counts, how far answers differ, and the worst examples with both answers.

import { at, el, term } from "./dom.js";
import { bothAnswers } from "./answers.js";
import { bars } from "./bars.js";
import { count, milliseconds, number as shown, percent } from "./format.js";

const PAIRS = [
  ["Compared", "compared", (mirror) => count(mirror.compared)],
  ["Equal", "equal", (mirror) => `${count(mirror.equal)} (${percent(mirror.equal, mirror.compared)})`],
  ["Different", "different", (mirror) => count(mirror.different)],
  ["Dropped", "dropped", (mirror) => count(Object.values(mirror.dropped).reduce((total, each) => total + each, 0))],
  ["Caller's mean", "mean", (mirror) => milliseconds(mirror.latency_ms?.primary?.mean)],
  ["Mirror's mean", "mean", (mirror) => milliseconds(mirror.latency_ms?.mirror?.mean)],
];

export class Mirrors {
  constructor() {
    this.area = el("div", { class: "mirrors" });
    this.empty = el("p", { class: "empty" }, "No mirror is configured.");
    at("mirrors").append(this.area, this.empty);
    this.before = "";
    this.opened = new Set();
  }

  show({ mirror }) {
    const mirrors = mirror?.mirrors ?? [];
    this.empty.hidden = mirrors.length > 0;
    const now = JSON.stringify(mirrors);
    if (now === this.before) return;
    this.before = now;
    this.area.replaceChildren(...mirrors.map((mirror, number) => card(mirror, number, this.opened)));
  }
}

function card(mirror, number, opened) {
  const pairs = PAIRS.map(([name, word, value]) => el("div", {}, el("dt", {}, term(name, word)), el("dd", {}, value(mirror))));
  return el(
    "article",
    { class: "card" },
    el("h3", {}, `${mirror.name} → ${mirror.to}, ${shown(mirror.percent)} %`),
    el("dl", { class: "pairs" }, ...pairs),
    histogram(mirror),
    ...Object.entries(mirror.failures).map(([kind, failure]) => el("p", { class: "bad" }, `${kind}: ${count(failure.count)}, last: ${failure.last}`)),
    ...worst(mirror, number, opened),
  );
}

function histogram({ differences }) {
  if (!differences?.some((each) => each.count)) return null;
  const entries = differences.map(({ up_to: bound, count: value }) => ({ label: bound === null ? "more" : bound === 0 ? "0" : `≤ ${bound.toExponential(0)}`, value, tone: bound === 0 ? "" : "warn" }));
  return el("div", {}, el("h4", {}, term("Largest difference of an answer", "difference")), bars(entries, "Comparisons by their largest absolute difference"));
}

function worst({ outputs }, number, opened) {
  const found = Object.entries(outputs).filter(([, output]) => output.worst);
  if (!found.length) return [];
  const head = ["Output", "First different element", "Caller's answer", "Mirror's answer", "Largest difference of the answer"].map((text) => el("th", { scope: "col" }, text));
  const lines = found.map(([name, { worst: example }]) => {
    const where = example.index === null ? (example.byte === null ? "" : `byte ${example.byte}`) : `[${example.index.join(", ")}]`;
    const off = example.max_absolute === null ? "∞" : shown(example.max_absolute);
    const cells = [["First different element", where], ["Caller's answer", example.expected], ["Mirror's answer", example.actual], ["Largest difference of the answer", off]];
    return el("tr", {}, el("th", { scope: "row" }, name), ...cells.map(([label, text]) => el("td", { class: "mono", "data-label": label }, text)));
  });
  return [
    el("h4", {}, "Worst examples"),
    el("div", { class: "scroll answers", tabindex: "0", role: "region", "aria-label": "Worst examples" }, el("table", { class: "rows" }, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...lines))),
    ...found.map(([name]) => bothAnswers(number, name, opened)),
  ];
}

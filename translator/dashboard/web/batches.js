// Runs by batch size, of the selected model or of all.

import { at, el, term } from "./dom.js";
import { bars } from "./bars.js";

const MOST = 16;

export class Batches {
  constructor(selection) {
    this.selection = selection;
    this.note = el("small");
    this.area = el("div", { class: "plot" });
    at("plot-batches").append(el("figcaption", {}, term("Batch sizes", "batches"), this.note), this.area);
    this.before = "";
  }

  show(entries) {
    const chosen = this.selection.get("model");
    const sizes = new Map();
    for (const [name, entry] of entries.models) {
      if (chosen !== null && name !== chosen) continue;
      for (const version of entry.versions) {
        for (const [size, runs] of Object.entries(version.executions_by_batch_size ?? {})) {
          sizes.set(Number(size), (sizes.get(Number(size)) ?? 0) + runs);
        }
      }
    }
    const now = JSON.stringify([...sizes]);
    if (now === this.before) return;
    this.before = now;
    const all = [...sizes].sort(([one], [other]) => one - other);
    const busiest = new Set([...all].sort((one, other) => other[1] - one[1]).slice(0, MOST).map(([size]) => size));
    const shown = all.filter(([size]) => busiest.has(size)).map(([size, value]) => ({ label: String(size), value }));
    this.note.textContent = shown.length ? "runs by elements per run, since the start" : "";
    const none = el("p", { class: "hint" }, "No model has run here yet. Models on upstreams are batched there.");
    this.area.replaceChildren(shown.length ? bars(shown, "Runs by batch size") : none);
  }
}

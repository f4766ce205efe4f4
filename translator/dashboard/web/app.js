// Puts the parts of the page together: events of the server go to each part that shows them.

import { Batches } from "./batches.js";
import { Configuration } from "./configuration.js";
import { at, write } from "./dom.js";
import { Flow } from "./flow.js";
import { clock } from "./format.js";
import { Mirrors } from "./mirrors.js";
import { Overview } from "./overview.js";
import { Plots } from "./plots.js";
import { RANGES, Selection } from "./selection.js";
import { Stream } from "./stream.js";
import { makeTables } from "./tables.js";
import { startTheme } from "./theme.js";
import { startTooltips } from "./tooltip.js";
import { Trial } from "./trial.js";

const entries = { models: new Map() };
const selection = new Selection(selected);
const overview = new Overview(selection);
const plots = new Plots();
const flow = new Flow(selection);
const batches = new Batches(selection);
const mirrors = new Mirrors();
const trial = new Trial();
const tables = makeTables((model) => {
  selection.toggle("model", model);
  at("traffic").scrollIntoView();
});

new Configuration();

const stream = new Stream(
  {
    entries({ first, entries: changed }) {
      if (first) for (const name of Object.keys(entries)) delete entries[name];
      entries.models = first ? new Map() : entries.models;
      for (const [name, value] of Object.entries(changed)) {
        if (!name.startsWith("models/")) entries[name] = value;
        else if (value === null) entries.models.delete(name.slice(7));
        else entries.models.set(name.slice(7), value);
      }
      overview.entries(entries);
      tables.show(entries);
      batches.show(entries);
      mirrors.show(entries);
      trial.show(entries);
    },
    points(event) {
      plots.add(event, RANGES[selection.range]);
      if (plots.latest) overview.latest(plots.latest);
    },
    ways(ways) {
      flow.show(ways);
      overview.ways(ways);
    },
  },
  connected,
);

let lostAt = null;

/** Shows whether what is on the page is of now. */
function connected(state, text) {
  if (state === "live") lostAt = null;
  else lostAt ??= Date.now() / 1000;
  const words = { live: "Live", stalled: `Stalled: ${text}`, lost: `No answer since ${clock(lostAt)}` };
  write(at("connection"), words[state]);
  at("connection").className = state === "live" ? "quiet" : "bad";
}

function selected() {
  at("range").value = selection.range;
  overview.filters();
  flow.draw();
  batches.show(entries);
  stream.open(selection.query());
}

at("range").value = selection.range;
at("range").addEventListener("change", (event) => selection.set("range", event.target.value));
startTooltips();
startTheme(() => plots.restyle());
stream.open(selection.query());

// Both answers of a mirror's worst example, element by element; read when they are opened.

import { shortest, signed } from "./answer.js";
import { el, write } from "./dom.js";
import { count } from "./format.js";

/** A part that opens: output `name` of mirror `number`. `opened` has the keys of those that are open. */
export function bothAnswers(number, name, opened) {
  const key = JSON.stringify([number, name]);
  const area = el("div");
  const show = async () => {
    if (!details.open) return void opened.delete(key);
    opened.add(key);
    try {
      const { mirrors } = await (await fetch("mirror", { cache: "no-store" })).json();
      area.replaceChildren(...compared(mirrors[number], mirrors[number].outputs[name].worst));
    } catch (failure) {
      write(area, failure.message);
    }
  };
  const details = el("details", { ontoggle: show }, el("summary", {}, `${name}: both answers`), area);
  details.open = opened.has(key);
  return details;
}

function compared({ rtol, atol }, worst) {
  const { expected, actual } = worst.answers;
  if (!expected && !actual) return [el("p", { class: "hint" }, "The values are redacted.")];
  const who = worst.request_id ? `with id ${worst.request_id}` : `number ${count(worst.number)}`;
  const sides = [expected, actual].map((side) => (side ? `${side.datatype} [${side.shape.join(", ")}]` : "none"));
  const title = `Request ${who}${worst.response ? `, response ${worst.response}` : ""}: caller's ${sides[0]}, mirror's ${sides[1]}`;
  const left = expected?.data ?? [], right = actual?.data ?? [];
  const rows = Array.from({ length: Math.max(left.length, right.length) }, (_, place) => {
    const off = !near(left[place], right[place], rtol, atol);
    return el("tr", off ? { class: "bad" } : {}, el("th", { scope: "row" }, String(place)), el("td", {}, shown(left[place], expected)), el("td", {}, shown(right[place], actual)));
  });
  const heads = ["Element", "Caller's", "Mirror's"].map((text) => el("th", { scope: "col" }, text));
  const table = el("table", { class: "both mono" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows));
  const rest = Math.max(expected?.elements ?? 0, actual?.elements ?? 0) - rows.length;
  return [
    el("p", { class: "hint" }, title),
    el("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Both answers" }, table),
    rest > 0 ? el("p", { class: "hint" }, `… and ${count(rest)} more elements`) : null,
  ].filter(Boolean);
}

function near(one, other, rtol, atol) {
  if (typeof one !== "number" || typeof other !== "number") return one === other;
  return Math.abs(one - other) <= atol + rtol * Math.abs(one);
}

function shown(value, side) {
  if (value === undefined) return "–";
  if (side.datatype === "BYTES") return JSON.stringify(value);
  return side.datatype === "FP32" ? shortest(value) : signed(value);
}

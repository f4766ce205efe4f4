// Bars with their labels, in proportion to the largest.

import { el } from "./dom.js";
import { count } from "./format.js";

/** A list of bars, each with `label`, `value` and perhaps `tone`. */
export function bars(entries, title) {
  const most = Math.max(1, ...entries.map((each) => each.value));
  const items = entries.map(({ label, value, tone }) => {
    const bar = el("i");
    bar.style.height = value ? `${(80 * value) / most}%` : "0";
    return el("li", { class: tone ?? "" }, el("span", {}, count(value)), bar, el("b", {}, label));
  });
  return el("ul", { class: "bars", tabindex: "0", "aria-label": title }, ...items);
}

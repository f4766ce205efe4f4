// The ways of inferences: dialect, route, model, upstream, in four columns. A node is a button that selects.

import { at, el, svg, term } from "./dom.js";
import { count, milliseconds, percent } from "./format.js";
import { KINDS, label } from "./selection.js";

const TITLES = ["Dialect", "Route", "Model", "Upstream"];
const MOST = 8;

export class Flow {
  constructor(selection) {
    this.selection = selection;
    this.ways = [];
    this.area = at("flow");
    new ResizeObserver(() => this.links()).observe(this.area);
  }

  show(ways) {
    this.ways = ways;
    this.draw();
  }

  draw() {
    const focused = document.activeElement?.dataset?.node;
    this.nodes = KINDS.map((kind) => this.column(kind));
    if (!this.ways.length) {
      this.area.replaceChildren(el("p", { class: "hint" }, "No inference in this range."));
      return;
    }
    this.svg = svg("svg", { "aria-hidden": "true" });
    const columns = this.nodes.map((nodes, place) => {
      const buttons = nodes.slice(0, MOST).map((node) => el("li", {}, this.button(KINDS[place], node)));
      const rest = nodes.length - buttons.length;
      if (rest > 0) buttons.push(el("li", { class: "more" }, `and ${count(rest)} more`));
      return el("div", {}, el("h4", {}, term(TITLES[place], KINDS[place])), el("ul", {}, ...buttons));
    });
    this.area.replaceChildren(this.svg, ...columns);
    if (focused) this.area.querySelector(`[data-node="${CSS.escape(focused)}"]`)?.focus();
    this.links();
  }

  column(kind) {
    const found = new Map();
    for (const way of this.ways) {
      const others = KINDS.every((each) => each === kind || this.selection.get(each) === null || this.selection.get(each) === way[each]);
      if (!others) continue;
      const node = found.get(way[kind]) ?? { value: way[kind], requests: 0, failed: 0, p95: 0 };
      node.requests += way.requests;
      node.failed += way.failed;
      node.p95 = Math.max(node.p95, way.p95_ms ?? 0);
      found.set(way[kind], node);
    }
    return [...found.values()].sort((one, other) => other.requests - one.requests);
  }

  button(kind, node) {
    const name = label(kind, node.value);
    const failed = node.failed ? `, ${percent(node.failed, node.requests)} failed` : "";
    const pressed = this.selection.get(kind) === node.value;
    return el(
      "button",
      { type: "button", "aria-pressed": String(pressed), "data-node": `${kind}/${node.value}`, onclick: () => this.selection.toggle(kind, node.value) },
      el("span", { title: name }, name),
      el("small", { class: node.failed ? "bad" : "" }, `${count(node.requests)}${failed}`),
      el("small", {}, `p95 ≤ ${milliseconds(node.p95)}`),
    );
  }

  /** The curves between neighbours; their width is the share of the requests. */
  links() {
    if (!this.svg || getComputedStyle(this.svg).display === "none") return;
    const box = this.area.getBoundingClientRect();
    this.svg.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    const boxes = new Map();
    for (const button of this.area.querySelectorAll("button")) boxes.set(button.dataset.node, button.getBoundingClientRect());
    const total = this.ways.reduce((sum, way) => sum + way.requests, 0);
    const edges = new Map();
    for (const way of this.ways) {
      KINDS.slice(1).forEach((kind, place) => {
        const ends = [`${KINDS[place]}/${way[KINDS[place]]}`, `${kind}/${way[kind]}`];
        const key = JSON.stringify(ends);
        const edge = edges.get(key) ?? { ends, requests: 0, on: false };
        edge.requests += way.requests;
        edge.on ||= this.selection.matches(way);
        edges.set(key, edge);
      });
    }
    const paths = [];
    for (const { ends, requests, on } of edges.values()) {
      const [from, to] = ends.map((node) => boxes.get(node));
      if (!from || !to) continue;
      const x1 = from.right - box.left, x2 = to.left - box.left, middle = (x1 + x2) / 2;
      const y1 = from.top + from.height / 2 - box.top, y2 = to.top + to.height / 2 - box.top;
      const width = Math.max(1.5, (26 * requests) / total);
      paths.push(svg("path", { d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`, "stroke-width": width.toFixed(1), class: on ? "" : "off" }));
    }
    this.svg.replaceChildren(...paths);
  }
}

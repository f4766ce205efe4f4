// A table that sorts by its columns and filters by text; rows become cards on a phone (parts.css).

import { at, el, write } from "./dom.js";
import { count } from "./format.js";

const PAGE = 100;

export class Table {
  /**
   * In the section `id`. A column has `name`, `term`, `value(row)` (a number, or text), and perhaps `numeric`,
   * `text(value, row)`, `tone(value, row)`, `cell(value, row)` for an element. `key(row)` is a row's own.
   */
  constructor(id, columns, { empty, sort, key, filter = true, page = PAGE }) {
    this.columns = columns;
    this.key = key;
    this.rows = [];
    this.shown = page;
    this.sort = sort ?? { column: 0, down: false };
    this.known = new Map();
    this.section = at(id);
    const title = `${id}-title`;
    this.heads = columns.map((column, place) => this.head(column, place));
    this.body = el("tbody");
    this.scroll = el(
      "div",
      { class: "scroll", role: "region", tabindex: "0", "aria-labelledby": title },
      el("table", { class: "rows", "aria-labelledby": title }, el("thead", {}, el("tr", {}, ...this.heads)), this.body),
    );
    this.empty = el("p", { class: "empty", hidden: true }, empty);
    this.status = el("p", { role: "status" });
    this.input = el("input", { type: "search", placeholder: "Filter…", "aria-label": `Filter ${this.section.querySelector("h2").textContent}`, oninput: () => this.draw() });
    this.tools = el("div", { class: "tools", hidden: !filter }, this.input, this.status);
    this.more = el("button", { type: "button", class: "button", hidden: true, onclick: () => { this.shown += 1000; this.draw(); } });
    this.section.append(this.tools, this.scroll, this.empty, this.more);
    this.filter = filter;
  }

  head(column, place) {
    const button = el("button", { type: "button", "data-term": column.term, onclick: () => this.sortBy(place) }, column.name);
    return el("th", { scope: "col", class: column.numeric ? "number" : "" }, button);
  }

  sortBy(place) {
    const again = this.sort.column === place;
    this.sort = { column: place, down: again ? !this.sort.down : Boolean(this.columns[place].numeric) };
    this.draw();
  }

  show(rows) {
    this.rows = rows;
    const keys = new Set(rows.map((row) => this.key(row)));
    for (const key of this.known.keys()) if (!keys.has(key)) this.known.delete(key);
    this.draw();
  }

  draw() {
    const none = !this.rows.length;
    this.scroll.hidden = none;
    this.tools.hidden = none || !this.filter;
    this.empty.hidden = !none;
    const found = this.sorted(this.filtered());
    const visible = found.slice(0, this.shown);
    this.heads.forEach((head, place) => {
      const on = place === this.sort.column;
      if (on) head.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const lines = visible.map((row) => this.line(row));
    const same = lines.length === this.body.children.length && lines.every((line, place) => this.body.children[place] === line);
    if (!same) this.body.replaceChildren(...lines);
    write(this.status, `${count(found.length)} of ${count(this.rows.length)}`);
    this.more.hidden = found.length <= visible.length;
    write(this.more, `Show more (${count(found.length - visible.length)})`);
  }

  filtered() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [...this.rows];
    return this.rows.filter((row) => {
      const text = this.columns.map((column) => this.text(column, row)).join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }

  sorted(rows) {
    const { column, down } = this.sort;
    const { value } = this.columns[column];
    const compare = (one, other) => {
      const a = value(one), b = value(other);
      if (typeof a === "string" || typeof b === "string") return String(a).localeCompare(String(b), "en", { numeric: true });
      return (a ?? -Infinity) - (b ?? -Infinity) || 0;
    };
    return rows.sort((one, other) => (down ? compare(other, one) : compare(one, other)));
  }

  text(column, row) {
    const value = column.value(row);
    return column.text ? column.text(value, row) : String(value ?? "");
  }

  /** The row in the document: the same one as long as its cells are the same. */
  line(row) {
    const key = this.key(row);
    const cells = this.columns.map((column) => [this.text(column, row), column.tone?.(column.value(row), row) ?? ""]);
    const now = JSON.stringify(cells);
    const known = this.known.get(key);
    if (known?.now === now) return known.line;
    const line = el("tr", {}, ...this.columns.map((column, place) => this.cell(column, row, cells[place], place)));
    this.known.set(key, { now, line });
    return line;
  }

  cell(column, row, [text, tone], place) {
    const content = column.cell?.(column.value(row), row) ?? text;
    const words = [column.numeric && "number", column.mono && "mono", column.code && "code", !text && "blank", !column.state && tone].filter(Boolean).join(" ");
    const inside = column.state && text ? el("span", { class: `state ${tone}` }, text) : content;
    if (!place) return el("th", { scope: "row", class: words }, inside);
    return el("td", { class: words, "data-label": column.name }, inside);
  }
}

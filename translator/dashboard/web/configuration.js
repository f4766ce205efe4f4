// The configuration that runs, and how the file differs from it; read once the section comes into view.

import { at, el, write } from "./dom.js";
import { count } from "./format.js";
import { Table } from "./table.js";

const text = (value) => (value === undefined || value === null ? "–" : String(value));

export class Configuration {
  constructor() {
    const section = at("configuration");
    this.status = el("p", { role: "status" }, "Not read yet.");
    const again = el("button", { type: "button", class: "button", onclick: () => this.read() }, "Compare with the file");
    this.errors = el("ul", { class: "bad", hidden: true });
    section.append(el("div", { class: "tools" }, this.status, again), this.errors);
    this.table = new Table(
      "configuration",
      [
        { name: "Option", term: "option", value: (row) => row.option, code: true },
        { name: "Runs", term: "loaded", value: (row) => text(row.loaded) },
        { name: "File", term: "file", value: (row) => text(row.file) },
      ],
      { empty: "The file has the values that run.", key: (row) => row.option, filter: false },
    );
    this.table.scroll.hidden = true;
    this.shown = el("pre", { tabindex: "0" });
    section.append(el("details", { class: "card" }, el("summary", {}, "What runs, without defaults and secrets"), this.shown));
    const watch = new IntersectionObserver((found) => {
      if (!found.some((each) => each.isIntersecting)) return;
      watch.disconnect();
      this.read();
    });
    watch.observe(section);
  }

  async read() {
    try {
      const answer = await fetch("config", { cache: "no-store" });
      if (!answer.ok) throw new Error(await answer.text());
      this.show(await answer.json());
    } catch (failure) {
      write(this.status, `Not read: ${failure.message}`);
    }
  }

  show({ file, loaded, differences, errors }) {
    const words = errors.length
      ? `${file} cannot be loaded:`
      : differences.length
        ? `${file} differs in ${count(differences.length)} ${differences.length === 1 ? "option" : "options"}; a reload applies it.`
        : `Loaded from ${file}.`;
    write(this.status, words);
    this.status.className = errors.length ? "bad" : differences.length ? "warn" : "";
    this.errors.hidden = !errors.length;
    this.errors.replaceChildren(...errors.map((each) => el("li", {}, each)));
    this.table.show(differences);
    this.table.empty.hidden ||= errors.length > 0;
    write(this.shown, JSON.stringify(loaded, null, 2));
  }
}

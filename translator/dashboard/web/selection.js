// What is selected: a range, and perhaps a dialect, route, model or upstream. It is in the address, after #?, so
// that a link shows the same.

export const KINDS = ["dialect", "route", "model", "upstream"];
const LABELS = { dialect: "Dialect", route: "Route", model: "Model", upstream: "Upstream" };

/** The name of `value`, a way's `kind`. */
export function label(kind, value) {
  if (value) return kind === "route" ? `Route ${value}` : value;
  return { route: "No route", model: "No model", upstream: "Here" }[kind] ?? value;
}

export class Selection {
  constructor(changed) {
    this.changed = changed;
    this.values = new URLSearchParams(location.hash.startsWith("#?") ? location.hash.slice(2) : "");
    addEventListener("hashchange", () => {
      if (!location.hash.startsWith("#?") || location.hash.slice(2) === this.query()) return;
      this.values = new URLSearchParams(location.hash.slice(2));
      this.changed();
    });
  }

  get range() {
    return this.values.get("range") ?? "10m";
  }

  get(kind) {
    return this.values.get(kind);
  }

  /** Whether `way` is one of those selected. */
  matches(way) {
    return KINDS.every((kind) => !this.values.has(kind) || this.values.get(kind) === way[kind]);
  }

  set(name, value) {
    if (value === null) this.values.delete(name);
    else this.values.set(name, value);
    history.replaceState(null, "", `#?${this.query()}`);
    this.changed();
  }

  toggle(kind, value) {
    this.set(kind, this.values.get(kind) === value ? null : value);
  }

  /** The conditions on ways, each with its text. */
  filters() {
    return KINDS.filter((kind) => this.values.has(kind)).map((kind) => {
      const value = this.values.get(kind);
      return { kind, text: kind === "route" && value ? label(kind, value) : `${LABELS[kind]}: ${label(kind, value)}` };
    });
  }

  query() {
    return this.values.toString();
  }
}

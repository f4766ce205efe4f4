// What is selected: a range, and perhaps a dialect, route, model or upstream. It is in the address, after #?, so
// that a link shows the same.

export const KINDS = ["dialect", "route", "model", "upstream"];
export const RANGES = { "1m": 60, "10m": 600, "1h": 3600, "2h": 7200, "6h": 21600, "24h": 86400 };
const LABELS = { dialect: "Dialect", route: "Route", model: "Model", upstream: "Upstream" };

/** The name of `value`, a way's `kind`. */
export function label(kind, value) {
  if (value) return kind === "route" ? `Route ${value}` : value;
  return { route: "No route", model: "No model", upstream: "Here" }[kind] ?? value;
}

/** The selection in the address, without what the server would refuse. */
function read(hash) {
  const given = [...new URLSearchParams(hash.startsWith("#?") ? hash.slice(2) : "")];
  return new URLSearchParams(given.filter(([name, value]) => KINDS.includes(name) || (name === "range" && Object.hasOwn(RANGES, value))));
}

export class Selection {
  constructor(changed) {
    this.changed = changed;
    this.values = read(location.hash);
    addEventListener("hashchange", () => {
      if (!location.hash.startsWith("#?") || location.hash.slice(2) === this.query()) return;
      this.values = read(location.hash);
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

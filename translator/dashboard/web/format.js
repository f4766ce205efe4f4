// Numbers, times and sizes as text.

const NOTHING = "–";
const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A number with about three digits. */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return NOTHING;
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 100) return plain.format(value);
  return size < 0.01 ? value.toPrecision(2) : value.toFixed(size >= 10 ? 1 : 2);
}

export const count = (value) => (value === null || value === undefined ? NOTHING : plain.format(value));
export const percent = (part, whole) => (whole ? `${number((100 * part) / whole)} %` : NOTHING);

export function bytes(value) {
  let size = value;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (size < 1024) return `${number(unit === "B" ? size : Number(size.toFixed(1)))} ${unit}`;
    size /= 1024;
  }
  return `${number(size)} TiB`;
}

export function span(secs) {
  const minutes = Math.floor(secs / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
  if (days) return `${days} d ${hours % 24} h`;
  if (hours) return `${hours} h ${minutes % 60} min`;
  return minutes ? `${minutes} min ${Math.floor(secs % 60)} s` : `${Math.floor(secs)} s`;
}

export const clock = (secs) => new Date(secs * 1000).toLocaleTimeString("en-GB");
export const milliseconds = (value) => (value === null || value === undefined ? NOTHING : `${number(value)} ms`);

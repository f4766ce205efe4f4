// The field of one input: JSON, text, a NumPy file, or an image that becomes a tensor of the model's shape.

import { el } from "./dom.js";
import { imageTensor } from "./image.js";

const KINDS = { json: "JSON", text: "Text", npy: ".npy file", image: "Image" };
const MOST = 64;
let numbers = 0;

export class InputField {
  constructor(spec) {
    this.spec = spec;
    const id = `input-${(numbers += 1)}`;
    const bytes = spec.datatype === "BYTES";
    const kinds = Object.entries(KINDS).filter(([kind]) => (kind === "text" ? bytes : kind !== "image" || !bytes));
    this.kind = el("select", { "aria-label": `Kind of ${spec.name}`, "data-term": "kind", onchange: () => this.change() }, ...kinds.map(([kind, name]) => el("option", { value: kind }, name)));
    if (bytes) this.kind.value = "text";
    this.area = el("textarea", { id, rows: "3", spellcheck: "false", class: "mono" }, bytes ? "" : example(spec));
    this.file = el("input", { type: "file", "aria-label": `File for ${spec.name}`, "data-term": "content", hidden: true });
    this.scale = el("select", { "aria-label": `Values of the pixels of ${spec.name}`, "data-term": "pixels", hidden: true }, el("option", { value: "1" }, "0 to 1"), el("option", { value: "255" }, "0 to 255"));
    const title = el("label", { for: id, "data-term": "tensor" }, el("strong", {}, spec.name || "(unnamed)"), ` ${spec.datatype} [${spec.shape.join(", ")}]`);
    this.element = el("div", { class: "field" }, title, el("div", { class: "tools" }, this.kind, this.file, this.scale), this.area);
    this.change();
  }

  change() {
    const kind = this.kind.value, file = kind === "npy" || kind === "image";
    this.file.hidden = !file;
    this.file.accept = kind === "image" ? "image/*" : ".npy";
    this.scale.hidden = kind !== "image" || !this.spec.datatype.startsWith("FP");
    this.area.hidden = file;
  }

  /** The input as the server takes it. */
  async value() {
    const { name } = this.spec, kind = this.kind.value;
    if (kind === "text") return { name, json: nested(this.area.value, this.spec.shape.length) };
    // the server parses it: JSON.parse would round integers beyond 2^53
    if (kind === "json") return { name, text: this.area.value };
    const [file] = this.file.files;
    if (!file) throw new Error(`Choose a file for ${name}.`);
    if (kind === "npy") return { name, npy: base64(new Uint8Array(await file.arrayBuffer())) };
    const { data, shape } = await imageTensor(file, this.spec, Number(this.scale.value));
    return { name, raw: base64(data), shape };
  }
}

function nested(value, rank) {
  return rank ? [nested(value, rank - 1)] : value;
}

/** Zeros of the shape, if that is short. */
function example({ datatype, shape }) {
  const sizes = shape.map((size) => Math.max(1, size));
  if (sizes.reduce((product, size) => product * size, 1) > MOST) return "";
  const zero = datatype === "BOOL" ? false : 0;
  const fill = ([size, ...rest]) => (size === undefined ? zero : Array.from({ length: size }, () => fill(rest)));
  return JSON.stringify(fill(sizes));
}

function base64(bytes) {
  let text = "";
  for (let start = 0; start < bytes.length; start += 0x8000) text += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  return btoa(text);
}

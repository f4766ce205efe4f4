// The answer of the form: each output as numbers, class bars or a picture, and the request for other programs.

import { el } from "./dom.js";
import { count, number } from "./format.js";
import { layout } from "./image.js";

const MOST_NUMBERS = 1000, MOST_CLASSES = 10;
const NAMES = { curl: "curl", python: "Python", infer: "interlingua infer" };

/** An output, with a choice of views. */
export function answer(output) {
  const views = { numbers: numbers(output), ...(classes(output) && { classes: classes(output) }), ...(picture(output) && { picture: picture(output) }) };
  const names = { numbers: "Numbers", classes: "Classes", picture: "Picture" };
  const area = el("div");
  const show = (name) => area.replaceChildren(views[name]);
  const select = el("select", { "aria-label": `View of ${output.name}`, "data-term": "view", onchange: () => show(select.value) }, ...Object.keys(views).map((name) => el("option", { value: name }, names[name])));
  const first = views.picture ? "picture" : views.classes ? "classes" : "numbers";
  select.value = first;
  show(first);
  const title = el("h3", {}, `${output.name || "(unnamed)"} ${output.datatype} [${output.shape.join(", ")}]`);
  return el("article", { class: "card" }, el("div", { class: "tools" }, title, select), area);
}

function numbers({ datatype, data, elements }) {
  const text = { BYTES: JSON.stringify, FP32: shortest }[datatype] ?? signed;
  const shown = data.slice(0, MOST_NUMBERS).map((value) => text(value)).join("  ");
  const rest = elements - Math.min(elements, MOST_NUMBERS);
  return el("pre", { tabindex: "0", class: "wrap" }, rest > 0 ? `${shown}\n… and ${count(rest)} more` : shown);
}

/** The shortest text that reads as the same FP32; values that are not finite are text already. */
export function shortest(value) {
  if (!value || typeof value !== "number") return signed(value);
  let digits = 1;
  // nine digits tell all FP32 values apart (IEEE 754-2019, section 5.12.2)
  while (digits < 9 && Math.fround(value.toPrecision(digits)) !== value) digits += 1;
  return signed(Number(value.toPrecision(digits)));
}

/** `String` drops the sign of zero. */
export function signed(value) {
  return Object.is(value, -0) ? "-0" : String(value);
}

/** The largest values of a vector, as bars. */
function classes({ data, shape }) {
  const length = shape.at(-1) ?? 0;
  const single = shape.slice(0, -1).every((size) => size === 1);
  if (!single || length < 3 || data.length < length || !data.every((value) => typeof value === "number")) return null;
  const ranked = data.map((value, place) => ({ value, place })).sort((one, other) => other.value - one.value).slice(0, MOST_CLASSES);
  const most = Math.max(...ranked.map(({ value }) => Math.abs(value)), 1e-12);
  const rows = ranked.map(({ value, place }) => {
    const bar = el("i");
    bar.style.width = `${(100 * Math.max(0, value)) / most}%`;
    return el("li", {}, el("b", {}, `class ${place}`), el("span", {}, bar), el("span", { class: "value" }, number(value)));
  });
  return el("ol", { class: "classes" }, ...rows);
}

function picture({ name, data, shape, elements }) {
  const places = layout(shape);
  if (!places || data.length < elements || !data.every((value) => typeof value === "number")) return null;
  const width = shape[places.width], height = shape[places.height];
  const channels = places.channels < 0 ? 1 : shape[places.channels];
  if (width < 8 || height < 8 || elements !== width * height * channels) return null;
  const low = Math.min(...data), high = Math.max(...data);
  const planar = places.channels >= 0 && places.channels < places.height;
  const image = new ImageData(width, height);
  for (let pixel = 0; pixel < width * height; pixel += 1) {
    for (let channel = 0; channel < 3; channel += 1) {
      const own = channels === 1 ? 0 : channel;
      const value = data[planar ? own * width * height + pixel : pixel * channels + own];
      image.data[4 * pixel + channel] = (255 * (value - low)) / (high - low || 1);
    }
    image.data[4 * pixel + 3] = 255;
  }
  const canvas = el("canvas", { width, height, class: "picture", role: "img", "aria-label": `${name} as a picture, ${width} × ${height}` });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

let messages = [];

/** The same request as commands and as a program. Releases the message of the request before. */
export function programs(snippets) {
  messages.forEach((each) => URL.revokeObjectURL(each));
  messages = [];
  if (!snippets) return [];
  const blocks = Object.entries(NAMES).map(([name, title]) => {
    const shown = el("pre", { tabindex: "0", class: "wrap" }, snippets[name]);
    const button = el("button", { type: "button", class: "button", onclick: () => copy(shown) }, "Copy");
    return el("details", {}, el("summary", {}, title), el("div", { class: "tools" }, button), shown);
  });
  for (const [name, content] of Object.entries(snippets.arrays ?? {})) blocks.unshift(el("p", {}, file(name, content), ", an input for interlingua infer"));
  if (snippets.file) blocks.unshift(el("p", {}, file("request.bin", snippets.file), ", the message that curl and Python send"));
  return [el("article", { class: "card" }, el("h3", {}, "The same request"), ...blocks)];
}

/** A link to a file, from base64. */
function file(name, content) {
  const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
  messages.push(URL.createObjectURL(new Blob([bytes])));
  return el("a", { href: messages.at(-1), download: name }, name);
}

/** Copies the text of `element`. Over plain HTTP from another machine there is no `navigator.clipboard`. */
function copy(element) {
  if (navigator.clipboard) return navigator.clipboard.writeText(element.textContent);
  getSelection().selectAllChildren(element);
  return document.execCommand("copy");
}

// Elements without HTML strings: whatever clients and servers choose as text stays text.

export const at = (id) => document.getElementById(id);

/** An element of `tag` with `properties` and `children`: elements, or text. */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const NS = "http://www.w3.org/2000/svg";

/** The same of SVG. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Sets the text of `element`, unless it is the same: a selection survives. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A term of the glossary. */
export const term = (text, name) => el("span", { "data-term": name, tabindex: "0" }, text);

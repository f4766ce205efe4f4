// Light or dark: the choice of the visitor, else that of the system.

import { at } from "./dom.js";

const system = matchMedia("(prefers-color-scheme: dark)");

/** Applies the theme; calls `changed` whenever it changes. */
export function startTheme(changed) {
  const select = at("theme");
  const apply = () => {
    const dark = select.value === "dark" || (select.value === "auto" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    changed();
  };
  select.value = localStorage.getItem("theme") ?? "auto";
  select.addEventListener("change", () => {
    localStorage.setItem("theme", select.value);
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}

/** The value of a custom property of the theme. */
export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

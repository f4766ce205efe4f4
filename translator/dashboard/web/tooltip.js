// One tooltip for all terms (`data-term`), on hover and on focus; Escape hides it (WCAG 2.2, 1.4.13).

import { at } from "./dom.js";
import { GLOSSARY } from "./glossary.js";

export function startTooltips() {
  const tip = at("tip");
  let shown = null;

  const hide = () => {
    if (!shown) return;
    shown.removeAttribute("aria-describedby");
    shown = null;
    tip.hidden = true;
  };

  const show = (event) => {
    const target = event.target.closest?.("[data-term]");
    if (target === shown) return;
    hide();
    const text = target && GLOSSARY[target.dataset.term];
    if (!text) return;
    shown = target;
    tip.textContent = text;
    tip.hidden = false;
    target.setAttribute("aria-describedby", "tip");
    place(target);
  };

  const place = (target) => {
    const box = target.getBoundingClientRect(), size = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left), innerWidth - size.width - 8);
    const below = box.bottom + 8 + size.height < innerHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${below ? box.bottom + 8 : box.top - size.height - 8}px`;
  };

  document.addEventListener("mouseover", show);
  document.addEventListener("focusin", show);
  document.addEventListener("focusout", hide);
  // the focus scrolls an element into view
  document.addEventListener("scroll", () => (shown && shown === document.activeElement ? place(shown) : hide()), { passive: true });
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}

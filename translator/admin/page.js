"use strict";
// Refreshes the values that the server rendered. All values are inserted as text, never as HTML.
(() => {
  const PAUSE_MS = 2000;
  const at = (id) => document.getElementById(id);
  const write = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };
  const drawn = new Map();

  const cell = (tag, [text, tone], numeric) => {
    const element = document.createElement(tag);
    element.textContent = text;
    element.className = `${numeric ? "number " : ""}${tone}`.trim();
    return element;
  };

  const row = (table, cells) => {
    const element = document.createElement("tr");
    cells.forEach((each, place) => {
      const child = cell(place ? "td" : "th", each, table.numeric.includes(table.columns[place]));
      if (!place) child.scope = "row";
      element.append(child);
    });
    return element;
  };

  const heads = (table) => {
    const element = document.createElement("tr");
    for (const column of table.columns) {
      const head = cell("th", [column, ""], table.numeric.includes(column));
      head.scope = "col";
      element.append(head);
    }
    return element;
  };

  const draw = (table) => {
    // unchanged tables stay, so that a selection or scroll position survives
    const now = JSON.stringify(table);
    if (drawn.get(table.id) === now) return;
    drawn.set(table.id, now);
    const section = at(table.id);
    section.querySelector(".scroll").hidden = !table.rows.length;
    section.querySelector(".empty").hidden = table.rows.length > 0;
    section.querySelector("thead").replaceChildren(heads(table));
    section.querySelector("tbody").replaceChildren(...table.rows.map((cells) => row(table, cells)));
  };

  const show = (view) => {
    document.title = `${view.title}: ${view.state[0]}`;
    write(at("state"), view.state[0]);
    at("state").className = view.state[1];
    view.facts.forEach(([, text], place) => write(at(`fact-${place}`), text));
    for (const chart of view.charts) {
      const figure = at(chart.id);
      write(figure.querySelector("b"), chart.latest);
      figure.querySelector("svg").setAttribute("aria-label", chart.summary);
      figure.querySelector("polyline").setAttribute("points", chart.points);
    }
    view.tables.forEach(draw);
  };

  const refresh = async () => {
    if (at("refresh").checked && !document.hidden) {
      try {
        const answer = await fetch("view", { cache: "no-store", signal: AbortSignal.timeout(10000) });
        if (!answer.ok) throw new Error(answer.statusText);
        show(await answer.json());
        write(at("stale"), "");
      } catch {
        if (!at("stale").textContent) {
          write(at("stale"), `No answer from the server since ${new Date().toLocaleTimeString()}.`);
        }
      }
    }
    setTimeout(refresh, PAUSE_MS);
  };
  setTimeout(refresh, PAUSE_MS);
})();

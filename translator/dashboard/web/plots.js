// Values over time, plotted by uPlot: axes with units, values under the pointer, one pointer for all plots.

import { at, el, term } from "./dom.js";
import { number } from "./format.js";
import { color } from "./theme.js";

const PLOTS = [
  {
    id: "plot-requests", least: 1, title: "Requests and failures", term: "requests", unit: "per second",
    series: [["requests_per_sec", "Requests", "series-1"], ["failed_per_sec", "Failures", "series-bad"]],
  },
  {
    id: "plot-latency", least: 1, title: "Latency", term: "latency", unit: "milliseconds",
    series: [["p50_ms", "p50", "series-2"], ["p95_ms", "p95", "series-1"], ["p99_ms", "p99", "series-3"]],
  },
  {
    id: "plot-waiting", least: 5, title: "Queue depth", term: "waiting", unit: "requests",
    series: [["waiting", "Waiting", "series-warn"]],
  },
];

const HEIGHT = 224;

export class Plots {
  constructor() {
    this.points = null;
    this.range = 600;
    for (const plot of PLOTS) {
      plot.area = el("div", { class: "plot", role: "img" });
      plot.note = el("small");
      at(plot.id).append(el("figcaption", {}, term(plot.title, plot.term), plot.note), plot.area);
    }
    new ResizeObserver(() => this.resize()).observe(at("traffic"));
  }

  /** Shows `points`, columns by name; `first`: instead of those before. */
  add({ first, points, interval_secs: interval }, range) {
    if (first || !this.points) this.points = points;
    else this.append(points);
    this.interval = interval;
    this.range = range;
    this.trim();
    this.draw();
  }

  append(points) {
    const known = this.points;
    const place = known.time.indexOf(points.time[0]);
    for (const [name, values] of Object.entries(points)) {
      if (place >= 0) known[name].length = place;
      known[name].push(...values);
    }
  }

  trim() {
    const { time } = this.points;
    const oldest = time.at(-1) - this.range;
    const place = time.findIndex((each) => each >= oldest);
    if (place > 0) for (const values of Object.values(this.points)) values.splice(0, place);
  }

  /** The values of the last interval that is over. */
  get latest() {
    if (!this.points?.time.length) return null;
    const place = Math.max(0, this.points.time.length - 2);
    return Object.fromEntries(Object.entries(this.points).map(([name, values]) => [name, values[place]]));
  }

  draw() {
    if (!this.points?.time.length) return;
    for (const plot of PLOTS) {
      // the last interval is not over
      const data = ["time", ...plot.series.map(([name]) => name)].map((name) => this.points[name].slice(0, -1));
      if (!plot.chart) plot.chart = this.chart(plot, data);
      else plot.chart.setData(data);
      const [name, title] = plot.series.at(plot.id === "plot-latency" ? 1 : 0);
      const known = this.points[name].filter((value) => value !== null);
      const highest = known.length ? Math.max(...known) : 0;
      plot.area.setAttribute("aria-label", `${title}: maximum ${number(highest)} ${plot.unit} in the range`);
      plot.note.textContent = `${title}: max ${number(highest)} ${plot.unit}`;
    }
  }

  chart(plot, data) {
    const axis = { stroke: color("quiet"), font: "12px system-ui", grid: { stroke: color("line"), width: 1 }, ticks: { show: false } };
    const options = {
      width: plot.area.clientWidth, height: HEIGHT,
      cursor: { sync: { key: "traffic" }, points: { size: 7 } },
      legend: { live: true },
      scales: {
        x: { range: () => [this.points.time.at(-1) - this.range, this.points.time.at(-1)] },
        y: { range: (chart, low, high) => [0, Math.max(high * 1.08, plot.least)] },
      },
      axes: [
        { ...axis, values: (chart, times) => times.map((time) => hours(time, this.range)), space: 70, size: 28 },
        { ...axis, label: plot.unit, labelFont: "12px system-ui", labelSize: 18, size: 52, values: (chart, values) => values.map(number) },
      ],
      series: [
        { label: "Time", value: (chart, time) => (time === null ? "–" : hours(time, 0)) },
        ...plot.series.map(([, label, tone], place) => ({
          label, stroke: color(tone), width: 1.75, spanGaps: false, points: { show: sparse },
          fill: plot.series.length < 3 && !place ? `${color(tone)}1f` : undefined,
          value: (chart, value) => number(value),
        })),
      ],
    };
    return new uPlot(options, data, plot.area);
  }

  /** Draws everything again, in the colours of the theme. */
  restyle() {
    for (const plot of PLOTS) {
      plot.chart?.destroy();
      plot.chart = null;
    }
    this.draw();
  }

  resize() {
    for (const plot of PLOTS) {
      const width = plot.area.clientWidth;
      if (plot.chart && width !== plot.chart.width) plot.chart.setSize({ width, height: HEIGHT });
    }
  }
}

/** Points are shown where a value has no neighbours to draw a line to. */
function sparse(chart, series) {
  const values = chart.data[series];
  return values.some((value, place) => value !== null && (values[place - 1] ?? null) === null && (values[place + 1] ?? null) === null);
}

function hours(time, range) {
  const text = new Date(time * 1000).toLocaleTimeString("en-GB");
  return range >= 3600 ? text.slice(0, 5) : text;
}

// Charts, drawn as SVG. Colours are the style sheet's, so that a chart follows the theme.

/** Room around the lines of a timeline, for the numbers of its axes; in pixels. */
const MARGIN = { left: 48, right: 8, top: 8, bottom: 22 };
/** Two samples further apart than this are not joined by a line; in seconds. */
const GAP = 10;

/** An SVG element with attributes and children. */
function shape(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** 1, 2 or 5 times a power of ten: the smallest that reaches `top` in `count` steps. */
function roundStep(top, count) {
  const least = top / count;
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((digit) => digit * power >= least * 0.999999);
}

/** Seconds before now, as a label. */
function when(seconds) {
  if (seconds === 0) return "now";
  return seconds % 60 === 0 ? `${-seconds / 60} min ago` : `${-seconds} s ago`;
}

/** Lines over the last five minutes: `series` are [label, colour], `format` writes a value, `max`
 * is the end of the axis if that does not depend on the values. */
function timeline(element, series, format, max) {
  const chart = { element, series, format, max, points: [], span: 60, pointer: null };
  const point = (at) => {
    chart.pointer = at;
    drawTimeline(chart);
  };
  element.addEventListener("pointermove", (event) => point(event.clientX - element.getBoundingClientRect().left));
  element.addEventListener("pointerleave", () => point(null));
  new ResizeObserver(() => drawTimeline(chart)).observe(element);
  return chart;
}

/** Draws `samples`, one of `fields` a line, over whole minutes. */
function setTimeline(chart, samples, fields) {
  const now = samples.length ? Date.parse(samples.at(-1).at) : 0;
  const seconds = samples.length ? (now - Date.parse(samples[0].at)) / 1000 : 0;
  chart.span = Math.min(SPAN, Math.max(60, Math.ceil(seconds / 60) * 60));
  chart.points = samples.map((sample) => ({
    at: sample.at, second: (Date.parse(sample.at) - now) / 1000, values: fields.map((field) => sample[field] ?? null),
  }));
  drawTimeline(chart);
}

function drawTimeline(chart) {
  const { clientWidth: width, clientHeight: height } = chart.element;
  if (width === 0) return;
  const most = chart.max ?? Math.max(10, ...chart.points.flatMap((point) => point.values));
  const step = roundStep(most, 4);
  const top = Math.ceil(most / step - 1e-6) * step;
  const [right, bottom] = [width - MARGIN.right, height - MARGIN.bottom];
  const x = (second) => right + (second / chart.span) * (right - MARGIN.left);
  // The names of several lines stand above them.
  const roof = MARGIN.top + (chart.series.length > 1 ? 18 : 0);
  const y = (value) => bottom - (value / top) * (bottom - roof);
  const drawn = [];
  for (let value = 0; value < top + step / 2; value += step) {
    drawn.push(
      shape("path", { class: "grid", d: `M${MARGIN.left},${y(value)}H${right}` }),
      shape("text", { class: "end", x: MARGIN.left - 6, y: y(value) + 4 }, chart.format(value)),
    );
  }
  for (let second = 0; second >= -chart.span; second -= chart.span > 150 ? 60 : 30) {
    const anchor = second === 0 ? "end" : second === -chart.span ? "" : "middle";
    drawn.push(shape("text", { class: anchor, x: x(second), y: height - 5 }, when(second)));
  }
  chart.series.forEach(([, colour], index) => drawn.push(drawLine(chart.points, index, colour, x, y)));
  if (chart.series.length > 1) drawn.push(legend(chart.series, right));
  const pointed = chart.pointer === null ? undefined : nearest(chart.points, (point) => Math.abs(x(point.second) - chart.pointer));
  if (pointed) drawn.push(shape("path", { class: "pointer", d: `M${x(pointed.second)},${roof}V${bottom}` }));
  chart.element.replaceChildren(...drawn);
  if (pointed) showTip(chart, pointed, x(pointed.second), width);
}

/** One line and the ground below it, with a gap where nothing was measured. */
function drawLine(points, index, colour, x, y) {
  const pieces = [];
  let before = null;
  for (const point of points) {
    const value = point.values[index];
    if (value === null) {
      before = null;
      continue;
    }
    if (before === null || point.second - before > GAP) pieces.push([]);
    pieces.at(-1).push([x(point.second), y(value)]);
    before = point.second;
  }
  const path = (piece) => piece.map((place) => place.join()).join("L");
  const lines = pieces.map((piece) => "M" + path(piece));
  const grounds = pieces.map((piece) => `M${piece[0][0]},${y(0)}L${path(piece)}V${y(0)}Z`);
  return shape("g", { class: colour },
    shape("path", { class: "ground", d: grounds.join("") }), shape("path", { class: "line", d: lines.join("") }));
}

/** The names of the lines, from the right. */
function legend(series, right) {
  const names = series.map(([label, colour]) => shape("tspan", { class: colour }, `  ― ${label}`));
  return shape("text", { class: "legend end", x: right, y: MARGIN.top + 4 }, ...names);
}

function nearest(points, distance) {
  return points.reduce((best, point) => (best === undefined || distance(point) < distance(best) ? point : best), undefined);
}

/** What was measured at the time that is pointed at, on the side where there is room. */
function showTip(chart, point, at, width) {
  const lines = [clock(point.at)];
  chart.series.forEach(([label], index) => {
    if (point.values[index] !== null) lines.push(`${label}: ${chart.format(point.values[index])}`);
  });
  const text = shape("text", {}, ...lines.map((line, index) => shape("tspan", { x: 8, y: 17 + 16 * index }, line)));
  const ground = shape("rect", { height: 16 * lines.length + 8, rx: 4 });
  const tip = shape("g", { class: "tip" }, ground, text);
  chart.element.append(tip);
  const size = text.getBBox().width + 16;
  ground.setAttribute("width", size);
  tip.setAttribute("transform", `translate(${at + size + 8 < width ? at + 8 : at - size - 8},${MARGIN.top})`);
}

/** Bars, each with its name and value; `items` are [name, value], longest first as given. */
function bars(element) {
  const chart = { element, items: [] };
  new ResizeObserver(() => drawBars(chart)).observe(element);
  return chart;
}

function setBars(chart, items) {
  chart.items = items;
  drawBars(chart);
}

function drawBars({ element, items }) {
  const { clientWidth: width, clientHeight: height } = element;
  if (width === 0) return;
  const row = Math.min(44, height / Math.max(1, items.length));
  const most = Math.max(1e-9, ...items.map(([, value]) => value));
  const texts = items.map(([name, value], index) => [
    shape("text", { x: 0, y: row * (index + 0.5) + 4 }, name),
    shape("text", { class: "end", x: width, y: row * (index + 0.5) + 4 }, rate(value)),
  ]);
  element.replaceChildren(...texts.flat());
  const widest = (column) => Math.max(0, ...texts.map((pair) => pair[column].getComputedTextLength()));
  const left = Math.min(widest(0) + 8, width / 2);
  const room = Math.max(0, width - left - widest(1) - 8);
  const bar = ([name, value], index) => shape("rect", {
    class: "bar", x: left, y: row * (index + 0.15), width: Math.max(1, (room * value) / most), height: row * 0.7, rx: 2,
  }, shape("title", {}, name));
  // A name that is too long ends behind its bar's ground.
  element.append(shape("rect", { class: "card-ground", x: left, y: 0, width: room, height }), ...items.map(bar));
}

/** A line without anything around it, in an SVG of 120 by 28. */
function setSpark(element, rates) {
  const most = Math.max(1e-9, ...rates);
  const x = (second) => 119 + (second * 118) / (SPARKS - 1);
  const points = rates.map((value, index) => ({ second: index + 1 - rates.length, values: [value] }));
  element.replaceChildren(drawLine(points, 0, "hot", x, (value) => 27 - (value / most) * 26));
}

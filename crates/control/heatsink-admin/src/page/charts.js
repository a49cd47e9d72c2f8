// Charts, by Chart.js. Colours come from the style sheet, so that light and dark are decided
// in one place.

const drawn = new Set();

const colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function paint(chart) {
  const [text, grid, series] = [colour("muted"), colour("line"), chart.$colours];
  chart.data.datasets.forEach((dataset, index) => {
    if (series[index] === undefined) return;
    dataset.borderColor = colour(series[index]);
    dataset.backgroundColor = colour(series[index] + "-soft");
  });
  for (const scale of Object.values(chart.options.scales ?? {})) {
    if (scale.ticks) scale.ticks.color = text;
    if (scale.grid) scale.grid.color = grid;
  }
  const legend = chart.options.plugins?.legend;
  if (legend?.labels) legend.labels.color = text;
}

function repaint() {
  for (const chart of drawn) {
    paint(chart);
    chart.update("none");
  }
}

function draw(canvas, colours, configuration) {
  const chart = new Chart(canvas, configuration);
  chart.$colours = colours;
  drawn.add(chart);
  paint(chart);
  return chart;
}

function undraw(chart) {
  drawn.delete(chart);
  chart.destroy();
}

/** Seconds before now, as a label. */
function when(seconds) {
  if (seconds === 0) return "now";
  return seconds % 60 === 0 ? `${-seconds / 60} min ago` : `${-seconds} s ago`;
}

/** Lines over the last five minutes: `series` are [label, colour], `format` writes a value. */
function timeline(canvas, series, format, max) {
  return draw(canvas, series.map(([, name]) => name), {
    type: "line",
    data: {
      datasets: series.map(([label]) => ({
        label, data: [], fill: true, borderWidth: 2, pointRadius: 0, pointHitRadius: 8, spanGaps: false,
      })),
    },
    options: {
      animation: false,
      parsing: false,
      normalized: true,
      maintainAspectRatio: false,
      interaction: { mode: "index", intersect: false },
      scales: {
        x: {
          type: "linear", min: -SPAN, max: 0, grid: {},
          ticks: { stepSize: 30, maxTicksLimit: 6, maxRotation: 0, callback: when },
        },
        y: { min: 0, max, suggestedMax: max === undefined ? 10 : undefined, grid: {}, ticks: { maxTicksLimit: 5, callback: format } },
      },
      plugins: {
        legend: { display: series.length > 1, align: "end", labels: { boxWidth: 12, boxHeight: 2 } },
        tooltip: {
          callbacks: {
            title: (points) => (points.length ? clock(points[0].raw.at) : ""),
            label: (point) => `${point.dataset.label}: ${format(point.parsed.y)}`,
          },
        },
      },
    },
  });
}

/** Draws `samples`, one of `fields` a line, over whole minutes. A gap in time is a gap in the
 * line. */
function setTimeline(chart, samples, fields) {
  const now = samples.length ? Date.parse(samples.at(-1).at) : 0;
  const seconds = samples.length ? (now - Date.parse(samples[0].at)) / 1000 : 0;
  chart.options.scales.x.min = -Math.min(SPAN, Math.max(60, Math.ceil(seconds / 60) * 60));
  chart.data.datasets.forEach((dataset, index) => {
    dataset.data = [];
    let before = null;
    for (const sample of samples) {
      const at = Date.parse(sample.at);
      if (before !== null && at - before > 10000) dataset.data.push({ x: (before - now) / 1000 + 1, y: null, at });
      before = at;
      dataset.data.push({ x: (at - now) / 1000, y: sample[fields[index]], at });
    }
  });
  chart.update("none");
}

/** Bars, longest first as given. */
function bars(canvas) {
  return draw(canvas, [], {
    type: "bar",
    data: {
      labels: [],
      datasets: [{ label: "commands/s", data: [], maxBarThickness: 28, backgroundColor: () => colour("cool") }],
    },
    options: {
      animation: false,
      indexAxis: "y",
      maintainAspectRatio: false,
      scales: {
        x: { min: 0, suggestedMax: 10, grid: {}, ticks: { maxTicksLimit: 5, callback: (value) => shortNumber.format(value) } },
        y: { grid: { display: false }, ticks: {} },
      },
      plugins: { legend: { display: false } },
    },
  });
}

/** A line without anything around it. */
function spark(canvas) {
  return draw(canvas, ["hot"], {
    type: "line",
    data: { labels: [], datasets: [{ data: [], borderWidth: 1.5, pointRadius: 0, fill: true }] },
    options: {
      animation: false,
      responsive: false,
      events: [],
      layout: { padding: 1 },
      scales: { x: { display: false }, y: { display: false, min: 0 } },
      plugins: { legend: { display: false }, tooltip: { enabled: false } },
    },
  });
}

function setSpark(chart, rates) {
  const padded = [...Array(Math.max(0, SPARKS - rates.length)).fill(null), ...rates];
  chart.data.labels = padded.map((_, index) => index);
  chart.data.datasets[0].data = padded;
  chart.update("none");
}

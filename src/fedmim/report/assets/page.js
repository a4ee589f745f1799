"use strict";
// The page's behaviour: unpacks plotly and the numbers, draws the charts, and keeps a live page up to date.

const AXES = {
  round: { title: "Round", hover: (value) => `round ${value.toLocaleString("en")}` },
  bytes: { title: "Bytes sent, both directions, all clients", tickformat: "~s", ticksuffix: "B", hover: size },
  seconds: { title: "Seconds of training", ticksuffix: " s", hover: (value) => `${value.toPrecision(3)} s` },
};
const FORMS = {
  accuracy: (value) => `${(100 * value).toFixed(2)}%`,
  test_loss: (value) => value.toPrecision(4),
  train_loss: (value) => value.toPrecision(4),
  consistency: (value) => value.toPrecision(3),
};
const UNIFIED = 10; // so many lines fit into one hover box
const PAPER = 680; // the width of a printed A4 page between its margins, in CSS pixels
const dark = matchMedia("(prefers-color-scheme: dark)");
const coarse = matchMedia("(pointer: coarse)");
let views = [];
let printing = false;

// --- numbers ---------------------------------------------------------------------------------------------------------

function size(bytes) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(bytes, 1)) / 3)));
  return `${Number((bytes / 1000 ** power).toPrecision(3))} ${units[power]}`;
}

// A running mean over a part of the curve, which grows at the beginning and looks back at the end, as in `fedmim plot`.
function smooth(values, part) {
  const half = Math.floor((values.length * part) / 2);
  if (half === 0) return values;
  const sums = [0];
  for (const value of values) sums.push(sums[sums.length - 1] + value);
  return values.map((_, at) => {
    const reach = Math.min(half, at), after = Math.min(at + reach, values.length - 1) + 1;
    return (sums[after] - sums[at - reach]) / (after - at + reach);
  });
}

const column = (rows, fold) => rows[0].map((_, i) => fold(rows.map((row) => row[i])));
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

// The points of these runs at which a figure is known in all of them: x, the mean, and each run's own.
function points(runs, figure, axis) {
  const kept = runs[0].round.map((_, i) => i).filter((i) => runs.every((run) => run[figure][i] != null));
  if (!kept.length) return null;
  return {
    x: kept.map((i) => mean(runs.map((run) => run[axis][i]))),
    round: kept.map((i) => runs[0].round[i]),
    rows: runs.map((run) => kept.map((i) => run[figure][i])),
  };
}

// --- charts ----------------------------------------------------------------------------------------------------------

const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;"); // plotly reads markup

function traces(line, figure, view) {
  const all = [];
  const main = { mode: "lines", type: "scatter", hoverinfo: "skip", line: { color: line.colour, width: 1, simplify: true } };
  for (const run of line.behind) {
    const found = points([run], figure, view.x);
    if (found) all.push({ ...main, x: found.x, y: found.rows[0], opacity: 0.45 });
  }
  const found = line.runs.length ? points(line.runs, figure, view.x) : null;
  if (!found) return all;
  const smoothed = found.rows.map((row) => smooth(row, view.smoothing / 100));
  const raw = column(found.rows, mean);
  if (found.rows.length > 1) {
    const high = column(smoothed, (values) => Math.max(...values)), low = column(smoothed, (values) => Math.min(...values));
    all.push({ ...main, x: [...found.x, ...[...found.x].reverse()], y: [...high, ...low.reverse()], fill: "toself", fillcolor: line.colour + "22", line: { width: 0 } });
  }
  if (smoothed[0] !== found.rows[0]) all.push({ ...main, x: found.x, y: raw, opacity: 0.28 });
  const form = FORMS[figure], name = escaped(line.label);
  const text = raw.map((value, i) => {
    const own = found.rows.map((row) => row[i]);
    const range = own.length > 1 ? ` (${form(Math.min(...own))} to ${form(Math.max(...own))})` : "";
    return view.unified ? `${name}: ${form(value)}${range}` : `<b>${name}</b><br>${AXES.round.hover(found.round[i])}${view.x === "round" ? "" : `, ${AXES[view.x].hover(found.x[i])}`}<br><b>${form(value)}</b>${range}`;
  });
  all.push({
    ...main, x: found.x, y: column(smoothed, mean), name, customdata: text, hoverinfo: undefined,
    hovertemplate: "%{customdata}<extra></extra>", // a name in the template itself could hold %{x}
    line: { color: line.colour, width: line.strong ? 2.8 : 1.9, dash: line.dash, simplify: true },
  });
  return all;
}

// Leave the steep beginning out of sight where it would press all curves together.
function accuracyRange(data) {
  const values = data.lines.flatMap((line) => [...line.runs, ...line.behind].flatMap((run) => run.accuracy)).filter((value) => value != null);
  if (!values.length) return undefined;
  values.sort((a, b) => a - b);
  const low = values[Math.floor(0.06 * (values.length - 1))], high = values[values.length - 1];
  const margin = 0.06 * (high - low) || 0.05;
  return [low - margin, high + margin];
}

function decades(drawn) {
  let low = Infinity, high = 0;
  for (const { y } of drawn) for (const value of y) if (value > 0) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return Math.log10(high / low);
}

function paint(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function layout(view, y) {
  const axis = { gridcolor: paint("grid"), linecolor: paint("rule"), zeroline: false, automargin: true, ticks: "" };
  return {
    margin: { l: 8, r: 20, t: 8, b: 8 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: paint("soft") },
    hovermode: view.unified ? "x unified" : "closest", hoverdistance: 40, dragmode: coarse.matches ? false : "zoom",
    hoverlabel: { bgcolor: paint("card"), bordercolor: paint("rule"), font: { color: paint("ink"), size: 12.5 }, align: "left" },
    xaxis: { ...axis, title: { text: AXES[view.x].title, standoff: 6 }, tickformat: AXES[view.x].tickformat, ticksuffix: AXES[view.x].ticksuffix, rangemode: "tozero", uirevision: view.x, unifiedhovertitle: { text: "Round %{x}" } },
    yaxis: { ...axis, uirevision: "y", ...y }, uirevision: "kept",
  };
}

function draw(box, view) {
  const chart = box.dataset.chart;
  if (chart === "skew") return drawSkew(box, view);
  const figure = chart === "loss" ? view.loss : chart;
  const shown = view.data.lines.filter((line) => !view.hidden.has(line.label));
  view.unified = view.x === "round" && shown.length <= UNIFIED;
  const drawn = shown.flatMap((line) => traces(line, figure, view));
  const known = view.data.lines.some((line) => [...line.runs, ...line.behind].some((run) => run[figure].some((value) => value != null)));
  if (!known) {
    box.innerHTML = '<p class="empty">Nothing to show yet.</p>';
    return undefined;
  }
  box.querySelector(".empty")?.remove();
  let y = { uirevision: figure };
  let shapes = [], annotations = [];
  if (chart === "accuracy") {
    const range = accuracyRange(view.data);
    y = { tickformat: ",.0~%", range };
    if (view.data.target != null && view.data.target > range[0] && view.data.target < range[1]) {
      shapes = [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: view.data.target, y1: view.data.target, line: { color: paint("soft"), width: 1, dash: "dot" } }];
      annotations = [{ xref: "paper", x: 0, xshift: 4, y: view.data.target, text: `target ${Number((100 * view.data.target).toFixed(2))}%`, showarrow: false, xanchor: "left", yanchor: "bottom", font: { size: 11 } }];
    }
  }
  if (chart === "consistency") y = { type: "log", exponentformat: "power", dtick: decades(drawn) > 1.5 ? 1 : "D2" };
  return plot(box, drawn, { ...layout(view, y), shapes, annotations });
}

function drawSkew(box, view) {
  const skew = view.data.skew;
  const classes = skew.shares[0].map((_, label) => label);
  box.style.height = `${Math.min(460, Math.max(170, 22 * classes.length + 60))}px`;
  const trace = {
    type: "heatmap", z: classes.map((label) => skew.shares.map((row) => row[label])), zmin: 0, zmax: 1, xgap: skew.clients.length > 120 ? 0 : 0.6, ygap: classes.length > 40 ? 0 : 0.6,
    customdata: classes.map((label) => skew.shares.map((row, i) => `client ${skew.clients[i]}, class ${label}<br><b>${Math.round(row[label] * skew.sizes[i])} of ${skew.sizes[i]} samples</b>`)),
    hovertemplate: "%{customdata}<extra></extra>", colorscale: [[0, paint("card")], [1, paint("cell")]],
    colorbar: { thickness: 10, outlinewidth: 0, tickformat: ".0%", tickvals: [0, 0.5, 1], len: 1 },
  };
  const base = layout({ x: "round", unified: false }, {});
  const axis = { ...base.xaxis, showgrid: false, rangemode: "normal", tickformat: undefined };
  return plot(box, [trace], { ...base, xaxis: { ...axis, showticklabels: false, title: { text: "Clients, by their largest class", standoff: 6 } }, yaxis: { ...base.yaxis, showgrid: false, title: { text: "Class", standoff: 4 }, dtick: Math.ceil(classes.length / 20), autorange: "reversed" } });
}

function plot(box, drawn, look) {
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], toImageButtonOptions: { format: "svg", filename: box.dataset.chart }, displayModeBar: coarse.matches ? false : "hover" };
  box.dataset.drawn = "true";
  if (printing) [look.width, look.height] = box.closest(".wide") ? [PAPER, 270] : [PAPER / 2 - 13, 200];
  return Plotly.react(box, drawn, { ...look, autosize: !printing }, config);
}

// --- one problem -----------------------------------------------------------------------------------------------------

function makeView(section, data) {
  const view = { section, data, x: "round", smoothing: 5, loss: "test_loss", hidden: new Set(), boxes: [...section.querySelectorAll(".chart")] };
  view.redraw = (which) => view.boxes.filter((box) => (box.dataset.drawn || printing) && (!which || which === box.dataset.chart)).forEach((box) => draw(box, view));
  const seen = new IntersectionObserver((entries) => {
    // One task for each chart, so that the first is seen while the next is drawn.
    for (const { isIntersecting, target } of entries) if (isIntersecting && !target.dataset.drawn) setTimeout(() => target.dataset.drawn || draw(target, view));
  }, { rootMargin: "300px" });
  view.boxes.forEach((box) => seen.observe(box));
  section.addEventListener("click", (event) => click(event, view));
  section.addEventListener("dblclick", (event) => {
    const label = event.target.closest(".legend button")?.dataset.label;
    if (label !== undefined) alone(view, label);
  });
  const slider = section.querySelector(".smoothing input");
  slider.addEventListener("input", () => {
    view.smoothing = Number(slider.value);
    section.querySelector(".smoothing output").value = `${slider.value}%`;
    view.redraw();
  });
  return view;
}

function click(event, view) {
  const button = event.target.closest("button");
  const head = event.target.closest(".runs thead th");
  if (head) return sortBy(head);
  if (!button) return undefined;
  if (button.classList.contains("copy")) return copy(button);
  if (button.dataset.label !== undefined) {
    if (!view.hidden.delete(button.dataset.label)) view.hidden.add(button.dataset.label);
    press(view);
    return view.redraw();
  }
  if (button.dataset.x) view.x = button.dataset.x;
  if (button.dataset.loss) view.loss = button.dataset.loss;
  press(view);
  return view.redraw(button.dataset.loss ? "loss" : undefined);
}

function alone(view, label) {
  const others = view.data.lines.map((line) => line.label).filter((other) => other !== label);
  const already = others.every((other) => view.hidden.has(other)) && !view.hidden.has(label);
  view.hidden = new Set(already ? [] : others);
  press(view);
  view.redraw();
}

function press(view) {
  for (const button of view.section.querySelectorAll(".toolbar button, figcaption button")) {
    const { label, x, loss } = button.dataset;
    const on = label !== undefined ? !view.hidden.has(label) : x ? x === view.x : loss === view.loss;
    button.setAttribute("aria-pressed", String(on));
  }
}

function sortBy(head) {
  const rows = [...head.closest("table").tBodies[0].rows];
  const descending = head.getAttribute("aria-sort") === "ascending";
  head.parentNode.querySelectorAll("[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const value = (row) => row.cells[head.cellIndex].dataset.value ?? row.cells[head.cellIndex].textContent.trim();
  rows.sort((a, b) => value(a).localeCompare(value(b), "en", { numeric: true }));
  const numbers = rows.map((row) => Number.parseFloat(value(row)));
  if (numbers.every((number) => !Number.isNaN(number))) rows.sort((a, b) => Number.parseFloat(value(a)) - Number.parseFloat(value(b)));
  if (descending) rows.reverse();
  head.closest("table").tBodies[0].append(...rows);
}

async function copy(button) {
  const text = button.parentNode.querySelector("pre");
  try {
    await navigator.clipboard.writeText(text.textContent.trim());
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  } catch {
    getSelection().selectAllChildren(text); // at least one key less to press
  }
}

// --- the whole page --------------------------------------------------------------------------------------------------

async function unpack(id) {
  const letters = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i += 1) bytes[i] = letters.charCodeAt(i);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  views.forEach((view) => view.redraw());
}

function watch(seconds) {
  let tag = "";
  const state = (text, alive) => {
    const box = document.getElementById("state");
    box.textContent = text;
    box.style.color = alive ? "#0c9d59" : "#d55e00";
  };
  const ask = async () => {
    try {
      const answer = await fetch("news", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        update(await answer.json());
      }
      state(answer.ok || answer.status === 304 ? "live" : "cannot read the runs", answer.ok || answer.status === 304);
    } catch {
      state("the server is gone", false);
    }
    setTimeout(ask, 1000 * seconds);
  };
  ask();
}

function update(fresh) {
  const page = new DOMParser().parseFromString(fresh.body, "text/html");
  const sections = page.querySelectorAll(".problem").length;
  const charts = page.querySelectorAll(".chart").length;
  if (sections !== views.length || charts !== document.querySelectorAll(".chart").length) return location.reload();
  const open = [...document.querySelectorAll("details")].map((details) => details.open);
  for (const part of page.querySelectorAll("[data-part]")) {
    const old = document.querySelector(`[data-part="${part.dataset.part}"]`);
    if (old) old.innerHTML = part.innerHTML;
  }
  document.querySelectorAll("details").forEach((details, i) => (details.open = open[i]));
  fresh.charts.problems.forEach((data, i) => {
    views[i].data = data;
    press(views[i]);
    views[i].redraw();
  });
  return undefined;
}

async function main() {
  document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  try {
    const [plotly, charts] = await Promise.all([unpack("plotly"), unpack("charts")]);
    const script = document.createElement("script");
    script.textContent = plotly;
    document.head.append(script);
    const sections = [...document.querySelectorAll(".problem")];
    views = JSON.parse(charts).problems.map((data, i) => makeView(sections[i], data));
  } catch (error) {
    const trouble = document.getElementById("trouble");
    trouble.textContent = `The charts cannot be shown (${error.message}); a browser of 2023 or later can.`;
    trouble.hidden = false;
    return;
  }
  let before = "light";
  addEventListener("beforeprint", () => {
    printing = true;
    before = document.documentElement.dataset.theme;
    setTheme("light");
  });
  addEventListener("afterprint", () => {
    printing = false;
    setTheme(before);
  });
  const seconds = Number(document.documentElement.dataset.live);
  if (seconds) watch(seconds);
}

main();

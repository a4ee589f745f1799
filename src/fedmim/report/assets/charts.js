// Charts: the traces and layouts for plotly.

const UNIFIED = 10; // at most this many lines share one hover box
const FEW = 20; // curves with at most this many points have markers
const STEEP = 0.06; // if this part of the values takes up
const WASTE = 0.5; // more than this part of the axis, it is cut off
const PAPER = 680; // the width of a printed A4 page between its margins, in CSS pixels
const coarse = matchMedia("(pointer: coarse)");
let printing = false;

// plotly interprets markup in names.
const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function traces(line, figure, view) {
  const all = [];
  const main = {
    mode: "lines",
    type: "scatter",
    hoverinfo: "skip",
    line: { color: line.colour, width: 1, simplify: true },
  };
  for (const run of line.behind) {
    const found = points([run], figure, view.x, true);
    if (found) all.push({ ...main, x: found.x, y: found.rows[0], opacity: 0.45 });
  }
  const found = line.runs.length ? points(line.runs, figure, view.x, false) : null;
  if (!found) return all;
  const smoothed = found.rows.map((row) => smooth(row, view.smoothing / 100));
  if (line.reference && view.x === "bytes") return [level(line, figure, view, column(smoothed, mean).pop())];
  const raw = column(found.rows, mean);
  if (found.rows.length > 1) {
    const high = column(smoothed, (values) => Math.max(...values));
    const low = column(smoothed, (values) => Math.min(...values));
    all.push({
      ...main,
      x: [...found.x, ...[...found.x].reverse()],
      y: [...high, ...low.reverse()],
      fill: "toself",
      fillcolor: line.colour + "22",
      line: { width: 0 },
    });
  }
  const every = points(line.runs, figure, view.x, true);
  if (smoothed[0] !== found.rows[0] || every.x.length > found.x.length)
    all.push({ ...main, x: every.x, y: column(every.rows, mean), opacity: 0.22 });
  const form = FORMS[figure];
  const name = escaped(line.label);
  const text = raw.map((value, i) => {
    const own = found.rows.map((row) => row[i]);
    const range = own.length > 1 ? ` (${form(Math.min(...own))} to ${form(Math.max(...own))})` : "";
    if (view.unified) return `${name}: ${form(value)}${range}`;
    const place = [AXES.round.hover(found.round[i])];
    if (view.x !== "round") place.push(AXES[view.x].hover(found.x[i]));
    return `<b>${name}</b><br>${place.join(", ")}<br><b>${form(value)}</b>${range}`;
  });
  all.push({
    ...main,
    x: found.x,
    y: column(smoothed, mean),
    name,
    customdata: text,
    hoverinfo: undefined,
    hovertemplate: "%{customdata}<extra></extra>", // a name inside the template could contain %{x}
    mode: found.x.length <= FEW ? "lines+markers" : "lines",
    marker: { color: line.colour, size: 6 },
    line: { color: line.colour, width: line.strong ? 2.8 : 1.9, dash: line.dash, simplify: true },
  });
  return all;
}

// A reference against bytes, of which it sends none: its last value as a horizontal line.
function level(line, figure, view, value) {
  const sent = view.data.lines.flatMap(({ runs, behind }) => [...runs, ...behind].map((run) => run.bytes.at(-1) ?? 0));
  const name = escaped(line.label);
  const text = `<b>${name}</b>, at the end: ${FORMS[figure](value)}`;
  return {
    mode: "lines",
    type: "scatter",
    x: [0, sent.reduce((a, b) => Math.max(a, b), 1)],
    y: [value, value],
    name,
    customdata: [text, text],
    hovertemplate: "%{customdata}<extra></extra>",
    line: { color: line.colour, width: 1.9, dash: line.dash },
  };
}

// The range of the axis: everything that is drawn. Only if most of the axis would show the steep start is this part cut
// off, with a note. Markers are never cut off. As in `fedmim plot`.
function accuracyRange(data) {
  const curves = data.lines
    .flatMap((line) => [...line.runs, ...line.behind])
    .map((run) => run.accuracy.filter((value) => value != null));
  const values = curves.flat().sort((a, b) => a - b);
  if (!values.length) return undefined;
  const [low, high] = [values[0], values[values.length - 1]];
  const start = values[Math.floor(STEEP * (values.length - 1))];
  const cut = start - low > WASTE * (high - low) && curves.every((each) => !each.length || each.length > FEW);
  const bottom = cut ? Math.floor(100 * start) / 100 : low;
  const margin = 0.06 * (high - bottom) || 0.05;
  return { range: [cut ? bottom : bottom - margin, high + margin], cut };
}

// The number of powers of ten that the curves span.
function decades(drawn) {
  const logs = drawn.flatMap(({ y }) => y.filter((value) => value > 0).map(Math.log10));
  return logs.reduce((a, b) => Math.max(a, b), -Infinity) - logs.reduce((a, b) => Math.min(a, b), Infinity);
}

function paint(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function layout(view, y) {
  const axis = { gridcolor: paint("grid"), linecolor: paint("rule"), zeroline: false, automargin: true, ticks: "" };
  return {
    margin: { l: 8, r: 20, t: 8, b: 8 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    showlegend: false,
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: paint("soft") },
    hovermode: view.unified ? "x unified" : "closest",
    hoverdistance: 40,
    dragmode: coarse.matches ? false : "zoom",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: paint("soft"), activecolor: paint("ink") },
    hoverlabel: {
      bgcolor: paint("card"),
      bordercolor: paint("rule"),
      font: { color: paint("ink"), size: 12.5 },
      align: "left",
    },
    xaxis: {
      ...axis,
      title: { text: AXES[view.x].title, standoff: 6 },
      tickformat: AXES[view.x].tickformat,
      ticksuffix: AXES[view.x].ticksuffix,
      rangemode: "tozero",
      spikecolor: paint("soft"),
      spikethickness: 1,
      spikedash: "solid",
      uirevision: view.x,
      unifiedhovertitle: { text: "Round %{x}" },
    },
    yaxis: { ...axis, uirevision: "y", ...y },
    uirevision: "kept",
  };
}

function draw(box, view) {
  const chart = box.dataset.chart;
  if (chart === "skew") return drawSkew(box, view);
  if (chart === "client_quantiles" || chart === "client_points") return drawClients(box, view);
  const figure = chart === "loss" ? view.loss : chart;
  const shown = view.data.lines.filter((line) => !view.hidden.has(line.label));
  view.unified = view.x === "round" && shown.length <= UNIFIED;
  const drawn = shown.flatMap((line) => traces(line, figure, view));
  const known = view.data.lines.some((line) =>
    [...line.runs, ...line.behind].some((run) => run[figure].some((value) => value != null)),
  );
  if (!known) {
    Plotly.purge(box);
    box.innerHTML = '<p class="empty">No data yet.</p>';
    box.dataset.drawn = "true";
    return undefined;
  }
  box.querySelector(".empty")?.remove();
  let y = { uirevision: figure };
  const { range, cut } = chart === "accuracy" ? accuracyRange(view.data) : {};
  if (chart === "accuracy") y = { tickformat: ",.2~%", range };
  // With one client per round, client drift is always zero, which a log axis cannot show.
  const log = chart === "consistency" && drawn.some((trace) => trace.y.some((value) => value > 0));
  if (log) y = { type: "log", exponentformat: "power", dtick: decades(drawn) > 1.5 ? 1 : "D2" };
  const look = layout(view, y);
  if (chart === "accuracy" && view.data.target != null) drawTarget(look, view.data.target);
  if (cut) noteCut(look, range[0]);
  return plot(box, drawn, look);
}

function drawTarget(look, target) {
  const [low, high] = look.yaxis.range;
  if (target <= low || target >= high) return;
  const line = { color: paint("soft"), width: 1, dash: "dot" };
  look.shapes = [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: target, y1: target, line }];
  const place = { xref: "paper", x: 0, xshift: 4, y: target, xanchor: "left", yanchor: "bottom", showarrow: false };
  look.annotations = [{ ...place, text: `target ${Number((100 * target).toFixed(2))}%`, font: { size: 11 } }];
}

// The note stays at its height when the reader zooms out.
function noteCut(look, low) {
  const place = { xref: "paper", x: 1, xanchor: "right", y: low, yanchor: "bottom", showarrow: false };
  const text = `values below ${Math.round(100 * low)}% are outside the first view ↓`;
  look.annotations = [...(look.annotations ?? []), { ...place, text, font: { size: 11 } }];
}

function drawSkew(box, view) {
  const skew = view.data.skew;
  const classes = skew.shares[0].map((_, label) => label);
  const told = (row, i, label) =>
    `client ${skew.clients[i]}, class ${label}<br>` +
    `<b>${Math.round(row[label] * skew.sizes[i])} of ${skew.sizes[i]} samples</b>`;
  box.style.height = `${Math.min(460, Math.max(170, 22 * classes.length + 60))}px`;
  const trace = {
    type: "heatmap",
    z: classes.map((label) => skew.shares.map((row) => row[label])),
    zmin: 0,
    zmax: 1,
    xgap: skew.clients.length > 120 ? 0 : 0.6,
    ygap: classes.length > 40 ? 0 : 0.6,
    customdata: classes.map((label) => skew.shares.map((row, i) => told(row, i, label))),
    hovertemplate: "%{customdata}<extra></extra>",
    colorscale: [
      [0, paint("card")],
      [1, paint("cell")],
    ],
    colorbar: { thickness: 10, outlinewidth: 0, tickformat: ".0%", tickvals: [0, 0.5, 1], len: 1 },
  };
  const base = layout({ x: "round", unified: false }, {});
  const axis = { ...base.xaxis, showgrid: false, rangemode: "normal", tickformat: undefined };
  return plot(box, [trace], {
    ...base,
    xaxis: { ...axis, showticklabels: false, title: { text: "Clients, ordered by largest class", standoff: 6 } },
    yaxis: {
      ...base.yaxis,
      showgrid: false,
      title: { text: "Class", standoff: 4 },
      dtick: Math.ceil(classes.length / 20),
      autorange: "reversed",
    },
  });
}

function plot(box, drawn, look) {
  const config = {
    responsive: true,
    displaylogo: false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]], // listed by name: the default set has a button that uploads
    toImageButtonOptions: { format: "svg", filename: box.dataset.chart },
    displayModeBar: coarse.matches ? false : "hover",
  };
  box.dataset.drawn = "true";
  if (printing) [look.width, look.height] = box.closest(".wide") ? [PAPER, 270] : [PAPER / 2 - 13, 200];
  return Plotly.react(box, drawn, { ...look, autosize: !printing }, config);
}

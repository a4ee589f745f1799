// Charts of the accuracy of each client: the distribution by method, and the clients by size and label skew.

const WIDE = 20; // sizes that differ by more than this factor have a logarithmic axis
const percent = (value) => `${Number((100 * value).toFixed(1))}%`;

function drawClients(box, view) {
  const lines = view.data.lines.filter((line) => view.data.clients[line.label] && !view.hidden.has(line.label));
  const chart = box.dataset.chart === "client_points" ? clientPoints : clientQuantiles;
  const { drawn, xaxis, yaxis } = chart(lines, view);
  const base = layout({ x: "round", unified: false }, {});
  return plot(box, drawn, {
    ...base,
    xaxis: { ...base.xaxis, rangemode: "normal", tickformat: undefined, uirevision: view.by, ...xaxis },
    yaxis: { ...base.yaxis, ...yaxis },
  });
}

// How many of the clients have at most a given accuracy.
function clientQuantiles(lines, view) {
  const drawn = lines.flatMap((line) => {
    const values = view.data.clients[line.label].quantiles[view.scores];
    if (!values) return [];
    const share = values.map((_, i) => i / (values.length - 1));
    const name = escaped(line.label);
    return {
      type: "scatter",
      mode: "lines",
      x: values,
      y: share,
      customdata: values.map(
        (value, i) => `<b>${name}</b><br>${percent(share[i])} of the clients: at most <b>${percent(value)}</b>`,
      ),
      hovertemplate: "%{customdata}<extra></extra>", // a name inside the template could contain %{x}
      line: { color: line.colour, width: line.strong ? 2.8 : 1.9, dash: line.dash },
    };
  });
  const ends = drawn.flatMap(({ x }) => [x[0], x[x.length - 1]]);
  const [low, high] = [ends.reduce((a, b) => Math.min(a, b), 1), ends.reduce((a, b) => Math.max(a, b), 0)];
  const margin = 0.03 * (high - low) || 0.05; // many clients may share the lowest value
  return {
    drawn,
    xaxis: { title: { text: "Accuracy", standoff: 6 }, tickformat: ",.2~%", range: [low - margin, high + margin] },
    yaxis: { title: { text: "Share of the clients", standoff: 4 }, tickformat: ".0%", range: [0, 1.01] },
  };
}

function clientPoints(lines, view) {
  const sizes = [];
  const drawn = lines.flatMap((line) => {
    const points = view.data.clients[line.label].points;
    const [x, y] = [points[view.by], points[view.scores]];
    if (!x || !y) return [];
    for (const size of points.size) sizes.push(size);
    return {
      type: "scatter",
      mode: "markers",
      x,
      y,
      customdata: y.map((value, i) => {
        const skew = points.skew ? `, label skew ${points.skew[i].toFixed(2)}` : "";
        const samples = `${points.size[i].toLocaleString("en")} samples${skew}`;
        const own = value == null ? "" : `: <b>${percent(value)}</b>`;
        return `<b>client ${escaped(points.name[i])}</b><br>${samples}<br>${escaped(line.label)}${own}`;
      }),
      hovertemplate: "%{customdata}<extra></extra>",
      marker: { color: line.colour, size: 6, opacity: 0.6 },
    };
  });
  const [low, high] = [sizes.reduce((a, b) => Math.min(a, b), Infinity), sizes.reduce((a, b) => Math.max(a, b), 0)];
  const size = { title: { text: "Training samples of the client", standoff: 6 } };
  if (high > WIDE * low) Object.assign(size, { type: "log", dtick: high > 1000 * low ? 1 : "D2", tickformat: "~s" });
  const skew = { title: { text: "Label skew of the client", standoff: 6 }, type: "linear" };
  return {
    drawn,
    xaxis: view.by === "size" ? size : skew,
    yaxis: { title: { text: "Accuracy", standoff: 4 }, tickformat: ",.2~%" },
  };
}

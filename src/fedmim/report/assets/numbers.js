"use strict";
// Numbers: means over seeds, smoothing, and formats of values and axes.

const AXES = {
  round: { title: "Round", hover: (value) => `round ${value.toLocaleString("en")}` },
  bytes: { title: "Bytes sent (both directions, all clients)", tickformat: "~s", ticksuffix: "B", hover: size },
  seconds: { title: "Seconds of training", ticksuffix: " s", hover: (value) => `${value.toPrecision(3)} s` },
  time: { title: "Simulated time", hover: (value) => `simulated time ${value.toPrecision(3)}` },
};
const FORMS = {
  accuracy: (value) => `${(100 * value).toFixed(2)}%`,
  test_loss: (value) => value.toPrecision(4),
  train_loss: (value) => value.toPrecision(4),
  consistency: (value) => value.toPrecision(3),
};

function size(bytes) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(bytes, 1)) / 3)));
  return `${Number((bytes / 1000 ** power).toPrecision(3))} ${units[power]}`;
}

// A running mean over a fraction of the curve. The window grows at the start and only looks back at the end, as in
// `fedmim plot`.
function smooth(values, part) {
  const half = Math.floor((values.length * part) / 2);
  if (half === 0) return values;
  const sums = [0];
  for (const value of values) sums.push(sums[sums.length - 1] + value);
  return values.map((_, at) => {
    const reach = Math.min(half, at);
    const after = Math.min(at + reach, values.length - 1) + 1;
    return (sums[after] - sums[at - reach]) / (after - at + reach);
  });
}

const column = (rows, fold) => rows[0].map((_, i) => fold(rows.map((row) => row[i])));
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

// The points where all runs have a value: the mean x, the round, and the values of each run. Long runs are thinned to
// evenly spaced points. With `all`, the extremes between them are included; means use only the evenly spaced points.
function points(runs, figure, axis, all) {
  if (!runs.every((run) => run[axis])) return null;
  const between = new Set(all ? [] : runs[0].between);
  const kept = runs[0].round
    .map((_, i) => i)
    .filter((i) => !between.has(i) && runs.every((run) => run[figure][i] != null));
  if (!kept.length) return null;
  return {
    x: kept.map((i) => mean(runs.map((run) => run[axis][i]))),
    round: kept.map((i) => runs[0].round[i]),
    rows: runs.map((run) => kept.map((i) => run[figure][i])),
  };
}

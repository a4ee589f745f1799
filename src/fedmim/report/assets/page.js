// The page: legend and switches of each problem, light and dark mode, printing, and updates of a live page.

const dark = matchMedia("(prefers-color-scheme: dark)");
const near = new Set(); // charts in the window or close to it
// Safari has no idle callbacks. A busy machine may never be idle: then after two seconds.
const whenIdle = window.requestIdleCallback
  ? (task) => window.requestIdleCallback(task, { timeout: 2000 })
  : (task) => setTimeout(task, 100);
let views = [];
let idle = false; // whether drawRest is scheduled

// Draw the remaining charts one by one while the browser is idle, so that screenshots of the whole page have them all.
function drawRest() {
  if (idle) return;
  idle = true;
  whenIdle(() => {
    idle = false;
    for (const view of views) {
      const box = view.boxes.find((each) => !each.dataset.drawn);
      if (box) {
        draw(box, view);
        return drawRest();
      }
    }
    return undefined;
  });
}

function makeView(section, data) {
  const view = {
    section,
    data,
    x: "round",
    smoothing: 5,
    loss: "test_loss",
    scores: "model",
    by: "size",
    hidden: new Set(),
    boxes: [...section.querySelectorAll(".chart")],
  };
  // Charts near the window are drawn at once, all others when the browser is idle: see drawRest.
  view.redraw = (which) => {
    for (const box of view.boxes) {
      if (which && which !== box.dataset.chart) continue;
      if (printing || near.has(box)) draw(box, view);
      else delete box.dataset.drawn;
    }
    drawRest();
  };
  const seen = new IntersectionObserver(
    (entries) => {
      // One task per chart: the first one is visible while the next one is drawn.
      for (const { isIntersecting, target } of entries) {
        if (isIntersecting) near.add(target);
        else near.delete(target);
        if (isIntersecting && !target.dataset.drawn) setTimeout(() => target.dataset.drawn || draw(target, view));
      }
    },
    { rootMargin: "300px" },
  );
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
    clearTimeout(view.soon); // drawing many curves is slower than the slider
    view.soon = setTimeout(() => view.redraw(), 40);
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
  for (const choice of ["loss", "scores", "by"]) {
    if (!button.dataset[choice]) continue;
    view[choice] = button.dataset[choice];
    press(view);
    return (choice === "loss" ? ["loss"] : ["client_quantiles", "client_points"]).forEach(view.redraw);
  }
  press(view);
  return view.redraw();
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
    const { label, ...choice } = button.dataset; // of one key: x, loss, scores or by
    const on = label !== undefined ? !view.hidden.has(label) : Object.keys(choice).every((key) => choice[key] === view[key]);
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
  if (numbers.every((number) => !Number.isNaN(number)))
    rows.sort((a, b) => Number.parseFloat(value(a)) - Number.parseFloat(value(b)));
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
    getSelection().selectAllChildren(text); // the user can copy the selection
  }
}

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
      state("disconnected", false);
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
    if (JSON.stringify(data) === JSON.stringify(views[i].data)) return press(views[i]);
    views[i].data = data;
    press(views[i]);
    return views[i].redraw();
  });
  return undefined;
}

async function main() {
  document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  document
    .getElementById("theme")
    .addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  try {
    const [plotly, charts] = await Promise.all([unpack("plotly"), unpack("charts")]);
    const script = document.createElement("script");
    script.textContent = plotly;
    document.head.append(script);
    const sections = [...document.querySelectorAll(".problem")];
    views = JSON.parse(charts).problems.map((data, i) => makeView(sections[i], data));
    drawRest();
  } catch (error) {
    const trouble = document.getElementById("trouble");
    trouble.textContent = `The charts cannot be shown: ${error.message}. Use a browser from 2023 or later.`;
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

// Draws the charts of the first page with uPlot, from the points that the server renders into the page.
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function clock(seconds) {
  const at = new Date(seconds * 1000);
  return `${String(at.getHours()).padStart(2, "0")}:${String(at.getMinutes()).padStart(2, "0")}`;
}

function series(label, colour) {
  return { label, stroke: style(colour), width: 1.5, points: { show: false }, spanGaps: true };
}

function options(element, lines) {
  const axis = { stroke: style("--soft"), grid: { stroke: style("--line"), width: 1 }, ticks: { stroke: style("--line") } };
  const time = { ...axis, space: 70, values: (_, ticks) => ticks.map(clock) };
  return {
    width: element.clientWidth, height: 190, series: [{}, ...lines], axes: [time, { ...axis, size: 44 }],
    scales: { y: { range: (_, low, high) => [0, Math.max(high, 1)] } }, legend: { live: false },
  };
}

const charts = {};

function draw() {
  const holder = document.getElementById("points");
  if (!holder || !window.uPlot) return;
  const [at, completed, failed, waiting, running] = JSON.parse(holder.dataset.points);
  const parts = {
    throughput: [[at, completed, failed], [series("completed", "--good"), series("failed", "--bad")]],
    depth: [[at, waiting, running], [series("waiting", "--warn"), series("running", "--run")]],
  };
  for (const [id, [data, lines]] of Object.entries(parts)) {
    const element = document.getElementById(id);
    if (charts[id]) charts[id].setData(data);
    else charts[id] = new window.uPlot(options(element, lines), data, element);
  }
}

window.addEventListener("resize", () => {
  for (const [id, chart] of Object.entries(charts)) chart.setSize({ width: document.getElementById(id).clientWidth, height: 190 });
});
document.addEventListener("daybreak-live", (event) => { if (event.detail === "points") draw(); });
if (document.readyState === "complete") draw(); else window.addEventListener("load", draw);

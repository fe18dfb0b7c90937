"use strict";
// The drawing of the cut graph, on a canvas: thousands of nodes stay quick.
const shownNodes = data.explorer;
const indexOf = new Map(shownNodes ? shownNodes.ids.map((id, i) => [id, i]) : []);
const near = shownNodes ? shownNodes.ids.map(() => []) : [];
if (shownNodes) {
  shownNodes.source.forEach((u, e) => {
    const v = shownNodes.target[e], lost = shownNodes.cut[e] === 1;
    near[u].push({ node: v, lost });
    near[v].push({ node: u, lost });
  });
}

// Eight colours that colour-blind people tell apart, then the same lighter or darker: islands lie apart.
function clientColour(k, dark) {
  const base = dark ? ["#6fb3ff", "#ff9a5c", "#45cfa5", "#e693d6", "#e2c14e", "#67d3ea", "#cda992", "#a9b1ff"]
    : ["#0b62c4", "#d55e00", "#009e73", "#b8459f", "#b38600", "#2aa6c9", "#7a5a46", "#6470d8"];
  const colour = d3.hsl(base[k % 8]);
  const turn = Math.floor(k / 8) % 3;
  if (turn === 1) colour.l = dark ? colour.l * 0.72 : Math.min(0.75, colour.l * 1.45);
  if (turn === 2) { colour.s *= 0.45; colour.l = dark ? Math.min(0.9, colour.l * 1.15) : colour.l * 0.75; }
  return colour.formatHex();
}

const drawing = { transform: d3.zoomIdentity, canvas: null, selected: null };

function buildDrawing(pick) {
  if (!shownNodes) { put("drawing", h("p", { class: "notice" }, data.absent)); return; }
  const n = shownNodes.ids.length, all = data.graph.nodes ?? n;
  const cut = d3.sum(shownNodes.cut), clients = shownNodes.clients.length;
  const sampled = n < all;
  const sentence = `${count(n, "node")}${sampled ? ` of ${all.toLocaleString("en")}, a sample,` : ""} at ${count(clients, "client")}, seed ${data.first_seed}. ${count(cut, "edge")} between clients (dashed) ${cut === 1 ? "is" : "are"} cut: ${shownNodes.known ? "no client sees the far end; methods with neighbours use what both ends know." : `nobody sees ${cut === 1 ? "it" : "them"} in training.`}`;
  const canvas = h("canvas", { role: "img", "aria-label": `Drawing of the cut graph: ${sentence} Single nodes can be looked at in the next section.` });
  const tip = h("div", { class: "tip" });
  drawing.canvas = canvas;
  const zoom = d3.zoom().scaleExtent([1, 12])
    .filter((event) => (event.type === "wheel" ? event.ctrlKey || event.metaKey : event.type.startsWith("touch") ? event.touches.length > 1 || drawing.transform.k > 1 : !event.button))
    .on("zoom", (event) => { drawing.transform = event.transform; paint(); });
  const by = (factor) => () => d3.select(canvas).call(zoom.scaleBy, factor);
  const find = (event) => {
    const [x, y] = d3.pointer(event, canvas);
    let best = null, least = 14 * 14;
    shownNodes.ids.forEach((_, i) => {
      const [px, py] = placeOf(i), far = (px - x) ** 2 + (py - y) ** 2;
      if (far < least) { least = far; best = i; }
    });
    return best;
  };
  canvas.addEventListener("click", (event) => { const i = find(event); if (i !== null) pick(shownNodes.ids[i], true); });
  canvas.addEventListener("pointermove", (event) => {
    const i = find(event);
    tip.style.opacity = i === null ? 0 : 1;
    if (i === null) return;
    tip.textContent = `${short(shownNodes.ids[i])} · client ${short(shownNodes.clients[shownNodes.client[i]])} · ${short(labelOf(shownNodes.label[i]))}`;
    const [x, y] = placeOf(i), room = canvas.clientWidth - tip.offsetWidth - 8;
    tip.style.transform = `translate(${Math.max(4, Math.min(room, x + 10))}px, ${Math.max(4, y - 34)}px)`;
  });
  canvas.addEventListener("pointerleave", () => { tip.style.opacity = 0; });
  const dark = isDark();
  const swatches = clients <= 24 ? shownNodes.clients.map((name, k) => h("li", {}, h("i", { "data-client": k, style: `background:${clientColour(k, dark)}` }), short(`client ${name}`))) : [];
  put("drawing",
    h("p", { class: "sub" }, sentence, sampled ? " The sample is made of connected pieces around nodes that have a set, from every client." : "", " Click a node to see its set."),
    h("div", { class: "canvas" }, canvas, tip, h("div", { class: "zoom" },
      h("button", { type: "button", class: "plain", "aria-label": "Zoom in", click: by(1.6) }, "+"),
      h("button", { type: "button", class: "plain", "aria-label": "Zoom out", click: by(1 / 1.6) }, "−"),
      h("button", { type: "button", class: "plain", click: () => d3.select(canvas).call(zoom.transform, d3.zoomIdentity) }, "Reset"))),
    h("ul", { class: "swatches", "aria-label": "Clients" }, swatches, h("li", {}, h("i", { class: "line" }), "edge that a client sees"), h("li", {}, h("i", { class: "dash" }), "edge lost in the cut")));
  d3.select(canvas).call(zoom).style("touch-action", "pan-y");
}

function placeOf(i) {
  const width = drawing.canvas.clientWidth, height = drawing.canvas.clientHeight;
  const side = Math.min(width, height) / 2 - 16;
  const wide = Math.min(1.55, Math.max(1, (width / 2 - 16) / side)); // islands may spread on a wide screen
  return drawing.transform.apply([width / 2 + (shownNodes.x[i] / 1000) * side * wide, height / 2 + (shownNodes.y[i] / 1000) * side]);
}

function paint() {
  const canvas = drawing.canvas;
  if (!canvas) return;
  const width = canvas.parentElement.clientWidth, height = Math.round(Math.max(300, Math.min(620, width * 0.68)));
  if (!width) return;
  const scale = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d"), css = getComputedStyle(document.documentElement), dark = isDark();
  const colour = (name) => css.getPropertyValue(name).trim();
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  const at = shownNodes.ids.map((_, i) => placeOf(i));
  const chosen = drawing.selected;
  const lines = (wanted, stroke, alpha, thick, dash) => {
    pen.beginPath();
    shownNodes.source.forEach((u, e) => {
      const v = shownNodes.target[e];
      if (wanted(e, u, v)) { pen.moveTo(...at[u]); pen.lineTo(...at[v]); }
    });
    pen.strokeStyle = stroke; pen.globalAlpha = alpha; pen.lineWidth = thick; pen.setLineDash(dash); pen.stroke(); pen.setLineDash([]);
  };
  const crowd = Math.min(1, 700 / Math.max(1, d3.sum(shownNodes.cut)));
  lines((e) => !shownNodes.cut[e], colour("--mark"), 0.33, 0.7, []);
  lines((e) => shownNodes.cut[e], colour("--bad"), 0.16 + 0.3 * crowd, 0.8, [4, 3]);
  const radius = (width < 500 ? 1.7 : 2.5) * Math.sqrt(Math.min(drawing.transform.k, 4)) * Math.min(1.6, Math.sqrt(2500 / at.length) || 1);
  pen.globalAlpha = 1;
  shownNodes.clients.forEach((_, k) => {
    pen.beginPath();
    at.forEach(([x, y], i) => { if (shownNodes.client[i] === k) { pen.moveTo(x + radius, y); pen.arc(x, y, radius, 0, 2 * Math.PI); } });
    pen.fillStyle = clientColour(k, dark);
    pen.fill();
  });
  if (chosen !== null && chosen !== undefined) {
    const touches = (e, u, v) => u === chosen || v === chosen;
    lines((e, u, v) => touches(e, u, v) && !shownNodes.cut[e], colour("--ink"), 0.9, 1.4, []);
    lines((e, u, v) => touches(e, u, v) && shownNodes.cut[e], colour("--bad"), 1, 1.6, [4, 3]);
    pen.globalAlpha = 1;
    pen.strokeStyle = colour("--ink"); pen.lineWidth = 2.2;
    pen.beginPath(); pen.arc(...at[chosen], radius + 5, 0, 2 * Math.PI); pen.stroke();
  }
  pen.globalAlpha = 1;
  document.querySelectorAll("#drawing [data-client]").forEach((swatch) => { swatch.style.background = clientColour(Number(swatch.dataset.client), dark); });
}

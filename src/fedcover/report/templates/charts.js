"use strict";
// The charts. Colours are the style sheet's, so that a change of theme needs no new drawing.
const FONT = { fontSize: "12px", fontFamily: "inherit", background: "transparent", overflow: "visible" };

// Methods side by side at every x: the k-th of m is shifted by its share of the room.
function dodge(cells, xs, xOf) {
  const present = [...new Set(cells.map((cell) => cell.method))].sort((a, b) => order.get(a) - order.get(b));
  const step = Math.min(0.14, 0.62 / Math.max(present.length, 1));
  return (cell) => xs.indexOf(xOf(cell)) + (present.indexOf(cell.method) - (present.length - 1) / 2) * step;
}

const axis = (xs, title) => [
  Plot.axisX(xs.map((_, i) => i), { tickFormat: (i) => String(xs[i]), tickSize: 0, label: title, labelAnchor: "center", labelArrow: "none" }),
];

function against(cells, xs, xOf, { title, y, low, high, zero, digits, extra = [], domain }) {
  const x = dodge(cells, xs, xOf);
  const colour = (cell) => style.get(cell.method).colour;
  const symbol = (cell) => style.get(cell.method).symbol;
  const sorted = [...cells].sort((a, b) => xs.indexOf(xOf(a)) - xs.indexOf(xOf(b)));
  const here = xs.findIndex((value) => value === (title === "Level" ? Number(label("alpha", state.alpha)) : Number(state.clients)));
  const tip = (cell) => `${cell.method}\nset size ${number(cell.set_size, 2)}${cell.set_size_sd === null ? "" : ` ± ${number(cell.set_size_sd, 2)}`}\ncoverage ${number(cell.coverage, 3)}${cell.coverage_split === null ? "" : ` (calibrated split ${number(cell.coverage_split, 3)})`}, target ${cell.level}`;
  return (width) => Plot.plot({
    width, height: 300, marginLeft: 46, marginRight: 8, marginBottom: 38, marginTop: 16, style: FONT,
    x: { domain: [-0.5, xs.length - 0.5], label: null },
    y: { label: null, ticks: 5, tickSize: 0, zero, nice: true, tickFormat: (v) => number(v, digits), ...(domain ? { domain } : {}) },
    marks: [
      ...(xs.length > 1 ? [Plot.rect([here], { x1: (i) => i - 0.5, x2: (i) => i + 0.5, fill: "var(--soft)" })] : []),
      Plot.gridY({ ticks: 5, stroke: "var(--line)", strokeOpacity: 1 }),
      ...axis(xs, title),
      ...extra,
      Plot.line(sorted, { x, y, z: "method", stroke: colour, strokeOpacity: 0.28, strokeWidth: 1.25 }),
      Plot.ruleX(cells.filter((cell) => cell[high.spread] !== null), { x, y1: low.of, y2: high.of, stroke: colour, strokeWidth: 1.5 }),
      Plot.dot(cells, { x, y, symbol, fill: (cell) => (data.methods[order.get(cell.method)].option ? colour(cell) : "var(--surface)"), stroke: colour, strokeWidth: 1.6, r: 4.6 }),
      Plot.tip(cells, Plot.pointer({ x, y, title: tip, fill: "var(--surface)", stroke: "var(--line)" })),
    ],
    symbol: { type: "identity" }, color: { type: "identity" },
  });
}

const judgedNodes = data.measured ? "test nodes" : "nodes without a label";

const spreadOf = (value, spread, sign) => (cell) => cell[value] + sign * (cell[spread] ?? 0);

function sizeChart(cells, xs, xOf, axisTitle, title, published) {
  if (cells.every((cell) => cell.set_size === null)) return h("p", { class: "notice" }, "Every node has a label and none was kept for testing, so that no set was made.");
  const sizes = { low: { of: spreadOf("set_size", "set_size_sd", -1) }, high: { of: spreadOf("set_size", "set_size_sd", 1), spread: "set_size_sd" } };
  const x = dodge(cells, xs, xOf);
  const hollow = published.filter((p) => xs.includes(p.x));
  const present = new Set(cells.map((cell) => cell.method));
  const marks = hollow.length ? [Plot.dot(hollow, {
    x: (p) => (present.has(p.method) ? x({ ...p, level: p.x, clients: p.x }) : xs.indexOf(p.x)), y: "set_size", symbol: "circle", r: 7.5, fill: "none",
    stroke: (p) => style.get(p.method)?.colour ?? "var(--mark)", strokeWidth: 1.2, strokeDasharray: "2,1.5",
    title: (p) => `${p.method}, ${p.score}, as published: ${number(p.set_size, 2)} ± ${number(p.set_size_sd, 2)}`,
  })] : [];
  const here = cells.filter((cell) => cell.level === Number(label("alpha", state.alpha)) && String(cell.clients) === state.clients);
  const least = here.filter((cell) => data.methods[order.get(cell.method)].option).sort((a, b) => a.set_size - b.set_size)[0];
  return chart({
    title, note: `Labels in a set, mean over seeds; bars: ± one standard deviation over seeds${hollow.length ? `; dashed rings: the published sizes (${hollow[0].score})` : ""}.`,
    alt: `${title}, by method. ${least ? `At the chosen level the smallest sets are those of ${least.method}, with ${number(least.set_size, 2)} labels.` : ""} ${describe(here, (c) => number(c.set_size, 2))}`,
    draw: against(cells, xs, xOf, { title: axisTitle, y: "set_size", ...sizes, zero: true, digits: 1, extra: marks }),
    columns: [["Method", (c) => c.method], [axisTitle, (c) => String(xOf(c)), true], ["Set size", (c) => number(c.set_size, 3), true], ["sd", (c) => number(c.set_size_sd, 3), true],
      ["Empty sets", (c) => number(c.empty_rate, 3), true], ["One label: right", (c) => number(c.singleton_hits, 3), true],
      ...(hollow.length ? [[`Published (${hollow[0].score})`, (c) => number(hollow.find((p) => p.method === c.method && p.x === xOf(c))?.set_size, 2), true]] : [])],
    body: cells,
  });
}

const describe = (cells, text) => (cells.length ? `${list(cells.map((cell) => `${cell.method} ${text(cell)}`))}.` : "");

// Coverage minus its target: so all levels share one line, and the band is wide enough to be seen.
function coverageChart(cells, xs, xOf, axisTitle, title) {
  if (!data.measured) return h("p", { class: "notice" }, "There are no test nodes, so that coverage was not measured. The verdict above says what is promised.");
  const held = cells.map((cell) => ({ ...cell, over: cell.coverage - cell.level }));
  const spreads = { low: { of: (c) => c.over - 3 * c.coverage_se }, high: { of: (c) => c.over + 3 * c.coverage_se, spread: "coverage_se" } };
  const bands = xs.map((value, i) => {
    const own = held.find((cell) => xOf(cell) === value && cell.low !== null);
    return own ? { i, top: own.high === null ? null : own.high - own.level } : null;
  }).filter(Boolean);
  const upper = bands.filter((band) => band.top !== null);
  const here = held.filter((cell) => cell.level === Number(label("alpha", state.alpha)) && String(cell.clients) === state.clients);
  const inside = held.filter((cell) => cell.resplit_status === "inside").length;
  const judged = held.filter((cell) => cell.status !== "none").length;
  const low = Math.min(-0.003, ...held.map(spreads.low.of));
  const top = Math.max(0.003, ...held.map(spreads.high.of), ...upper.map((b) => b.top));
  // What is promised, said of what is drawn: a band, only its lower end, or nothing.
  const [promise, verdict] = upper.length ? ["The blue band is where the theorem puts the mean.", `${inside} of ${judged} lie in the theorem's band.`]
    : judged ? ["The theorem promises the target or more; it sets no upper end here.", `${inside} of ${judged} keep the promise of the target or more.`]
      : ["This rule has no guarantee.", "This rule has no guarantee."];
  return chart({
    title, note: `Coverage minus its target, mean over seeds; bars: ± three standard errors of that mean. ${promise}`,
    alt: `${title}, by method. ${verdict} At the chosen level: ${describe(here, (c) => number(c.coverage, 3))}`,
    draw: against(held, xs, xOf, {
      title: axisTitle, y: "over", ...spreads, zero: false, digits: 3, domain: [low * 1.08, top * 1.08],
      extra: [
        Plot.rect(upper, { x1: (b) => b.i - 0.46, x2: (b) => b.i + 0.46, y1: 0, y2: "top", fill: "var(--band)", fillOpacity: 0.13 }),
        Plot.ruleY([0], { stroke: "var(--ink)", strokeWidth: 1.4 }),
        Plot.text([0], { x: xs.length - 0.5, y: 0, text: () => "target", textAnchor: "end", dy: 9, fill: "var(--muted)" }),
      ],
    }),
    columns: [["Method", (c) => c.method], [axisTitle, (c) => String(xOf(c)), true], ["Target", (c) => String(c.level), true], ["Coverage", (c) => number(c.coverage, 4), true], ["Worst slab", (c) => number(c.worst_slab_coverage, 3), true], ["On the calibrated split", (c) => number(c.coverage_split, 4), true], ["Chance leaves", (c) => (c.split_low === null ? "–" : `${number(c.split_low, 3)} to ${c.split_high === null ? "1" : number(c.split_high, 3)}`), true], ["Permutation p", (c) => number(c.p_value, 3), true], ["Standard error", (c) => number(c.coverage_se, 4), true], ["sd over seeds", (c) => number(c.coverage_sd, 4), true],
      ["Band", (c) => (c.low === null ? "none" : `${number(c.low, 3)} to ${c.high === null ? "1" : number(c.high, 4)}`), true], ["Verdict", (c) => (c.status === "none" ? "no guarantee" : c.status)]],
    body: held,
  });
}

function compare() {
  const level = (cell) => cell.level;
  const clients = (cell) => cell.clients;
  const fixed = (free) => rows.filter((cell) => DIMENSIONS.slice(0, -1).every((name) => name === free || String(cell[name]) === state[name]));
  const sorted = (cells, of) => [...new Set(cells.map(of))].sort((a, b) => a - b);
  const published = (test, x) => {
    if (state.variant !== "") return []; // nobody has published sizes of a variant
    const own = (data.published ?? []).filter((p) => p.dataset === state.dataset && test(p)).map((p) => ({ ...p, x: x(p) }));
    // Another score's sizes are better than none: those of the first source, and the note names it.
    const score = own.some((p) => p.score === state.score) ? state.score : own[0]?.score;
    return own.filter((p) => p.score === score);
  };
  const chosen = Number(label("alpha", state.alpha));
  if (document.getElementById("by-clients")) {
    const cells = fixed("clients"), xs = sorted(cells, clients);
    put("by-clients",
      sizeChart(cells, xs, clients, "Clients (K)", "Set size against the number of clients", published((p) => Math.abs(p.level - chosen) < 1e-9, (p) => p.clients)),
      coverageChart(cells, xs, clients, "Clients (K)", "Coverage against the number of clients"));
  }
  const cells = fixed("alpha"), xs = sorted(cells, level);
  put("by-level",
    sizeChart(cells, xs, level, "Level", "Set size against level", published((p) => String(p.clients) === state.clients, (p) => p.level)),
    coverageChart(cells, xs, level, "Level", "Coverage against level"));
  put("sizes", distribution());
}

const MOST = 8; // sizes with a colour of their own; larger ones share the last
function distribution() {
  if (view().every((cell) => cell.set_size === null)) return null; // nobody to make a set for
  const cells = view().sort((a, b) => order.get(a.method) - order.get(b.method));
  const parts = cells.flatMap((cell) => {
    const [group, n] = data.groups.size[cell.index];
    const total = d3.sum(n);
    const sizes = d3.rollup(group.map((g, i) => ({ size: Number(names[g]), n: n[i] })), (own) => d3.sum(own, (d) => d.n), (d) => Math.min(d.size, MOST));
    let from = 0;
    return [...sizes].sort((a, b) => a[0] - b[0]).map(([size, nodes]) => {
      const part = { method: cell.method, size, share: nodes / total, from, to: from + nodes / total };
      from = part.to;
      return part;
    });
  });
  const sizes = [...new Set(parts.map((part) => part.size))].sort((a, b) => a - b);
  const called = (size) => (size === 0 ? "empty" : size === MOST ? `${MOST} or more` : String(size));
  const ones = cells.map((cell) => ({ method: cell.method, share: parts.find((p) => p.method === cell.method && p.size === 1)?.share ?? 0 }));
  const figure = chart({
    title: "How large the sets are", note: `Share of ${judgedNodes} by the number of labels in their set, at the chosen level; clients are counted by the nodes asked about.`,
    alt: `Share of ${judgedNodes} by set size and method. Sets of exactly one label: ${list(ones.map((one) => `${one.method} ${percent(one.share)}`))}.`,
    draw: (width) => {
      const side = width < 520 ? 8 : Math.min(190, 24 + 7 * Math.max(...cells.map((cell) => cell.method.length)));
      const narrow = side === 8;
      return Plot.plot({
        width, height: cells.length * (narrow ? 54 : 36) + 34, marginLeft: side, marginRight: 8, marginTop: narrow ? 14 : 4, marginBottom: 28, style: FONT,
        x: { domain: [0, 1], label: null, tickFormat: (v) => `${100 * v}%`, ticks: 5, tickSize: 0 },
        y: { domain: cells.map((cell) => cell.method), label: null, padding: narrow ? 0.48 : 0.24, tickSize: 0, axis: narrow ? null : "left" },
        color: { type: "identity" },
        marks: [
          Plot.barX(parts, { x1: "from", x2: "to", y: "method", fill: (p) => `var(--z${p.size})`, insetRight: 1, title: (p) => `${p.method}: ${percent(p.share)} of the sets hold ${called(p.size)}` }),
          Plot.text(parts.filter((p) => p.share * width > 34), { x: (p) => (p.from + p.to) / 2, y: "method", text: (p) => percent(p.share), fill: (p) => `var(--t${p.size})` }),
          ...(narrow ? [Plot.text(cells, { x: 0, y: "method", text: "method", textAnchor: "start", dy: -23, fill: "var(--ink)" })] : []),
        ],
      });
    },
    columns: [["Method", (c) => c.method], ...sizes.map((size) => [called(size), (c) => percent(parts.find((p) => p.method === c.method && p.size === size)?.share ?? 0), true])],
    body: cells,
  });
  figure.querySelector("figcaption").append(h("ul", { class: "swatches", "aria-label": "Labels in a set" },
    sizes.map((size) => h("li", {}, h("i", { style: `background: var(--z${size}); border-radius: 3px` }), called(size)))));
  return figure;
}

const KINDS = [
  ["client", "client", "Each client", "One row for each client"],
  ["class", "class", "Each class", "Test nodes by their true label"],
  ["group", "group", "Each group", "Nodes by the column that groups them"],
  ["position", "place", "Boundary and interior", "Nodes that lost an edge to the cut, and nodes that lost none"],
  ["degree", "neighbours", "Neighbours", "Nodes by the number of neighbours at their client"],
];

// Clients differ from seed to seed, unless they were given: then their mean over seeds is shown.
function groupRows(cell, kind) {
  const packed = data.groups[kind][cell.index];
  if (!packed[0].length) return [];
  const all = packed[0].map((g, i) => ({
    name: names[g], n: packed[1][i], coverage: packed[2][i], set_size: packed[3][i],
    ...(kind === "client" ? { seed: packed[4][i] } : { coverage_sd: packed[4][i], set_size_sd: packed[5][i] }),
  }));
  if (kind !== "client") return all.map((row) => ({ ...row, others: [] }));
  const first = Math.min(...all.map((row) => row.seed));
  const byName = d3.groups(all, (row) => row.name);
  const natural = (a, b) => (isNaN(a.name) || isNaN(b.name) ? String(a.name).localeCompare(b.name) : a.name - b.name);
  return byName.map(([name, own]) => {
    const mean = (field) => d3.mean(own, (row) => row[field]);
    const main = data.partition === "given" ? { name, n: mean("n"), coverage: mean("coverage"), set_size: mean("set_size") }
      : own.find((row) => row.seed === first) ?? { name, n: own[0].n, coverage: null, set_size: null };
    return { ...main, others: own.filter((row) => row !== main) };
  }).sort(natural);
}

function dotPlot(cell, kind, held, value, target) {
  const worst = cell.worst;
  const marked = value === "coverage" && kind === "client" && worst ? [{ name: worst[0], coverage: worst[3] }] : [];
  const others = held.flatMap((row) => row.others);
  return (width) => {
    const letters = width < 400 ? 16 : 24, longest = Math.max(...held.map((row) => short(row.name, letters).length));
    const side = 20 + 6.7 * longest;
    const values = [...held, ...others].map((row) => row[value]).filter((v) => v !== null && v !== undefined);
    const domain = value === "coverage" ? [Math.min(target - 0.02, ...values) - 0.012, Math.min(1, Math.max(target + 0.02, ...values) + 0.012)] : [0, Math.max(1, ...values) * 1.06];
    return Plot.plot({
      width, height: held.length * 23 + 46, marginLeft: side, marginRight: 50, marginTop: 8, marginBottom: 30, style: FONT,
      x: { domain, label: null, ticks: Math.max(2, Math.floor((width - side - 50) / 56)), tickSize: 0, grid: true, tickFormat: (v) => number(v, value === "coverage" ? 2 : 1) },
      y: { domain: held.map((row) => row.name), label: null, tickSize: 0, tickFormat: (name) => short(String(name), letters), padding: 0.5 },
      color: { type: "identity" },
      marks: [
        value === "coverage" ? Plot.ruleX([target], { stroke: "var(--ink)", strokeWidth: 1.4 }) : null,
        Plot.dot(others, { x: value, y: "name", r: 2.6, fill: "var(--mark)", fillOpacity: 0.55 }),
        value === "coverage" ? Plot.link(held, { x1: target, x2: value, y1: "name", y2: "name", stroke: "var(--accent)", strokeOpacity: 0.35, strokeWidth: 1.5 })
          : Plot.link(held, { x1: 0, x2: value, y1: "name", y2: "name", stroke: "var(--accent)", strokeOpacity: 0.35, strokeWidth: 1.5 }),
        Plot.dot(held, { x: value, y: "name", r: 4.6, fill: "var(--accent)", title: (row) => `${row.name}: ${number(row[value], 3)}, ${number(row.n, 0)} ${judgedNodes}` }),
        Plot.dot(marked, { x: value, y: "name", r: 8, stroke: "var(--bad)", strokeWidth: 2 }),
        Plot.text(marked, { x: value, y: "name", text: () => "worst", dx: 12, dy: -9, textAnchor: "start", fill: "var(--bad)", fontWeight: 600 }),
        Plot.text(held, { frameAnchor: "right", y: "name", dx: 46, text: (row) => (value === "coverage" ? `n ${number(row.n, 0)}` : number(row.set_size, 2)), textAnchor: "end", fill: "var(--muted)", fontVariant: "tabular-nums" }),
      ],
    });
  };
}

function groups() {
  const cell = chosenCell(), by = data.calibrate ?? "pooled";
  const promised = by === "pooled" ? `The promise is a mean over the nodes asked about, not one for each client or class; here is ${data.measured ? "how it is shared out. By class, degree and position every test node counts once" : "how large their sets are"}.`
    : `Calibrated by ${by}: the promise is for each ${by} that has enough calibration nodes; a note names those that do not.`;
  document.getElementById("groups-for").textContent = `The method ${cell.method} at level ${cell.level}. ${promised}`;
  const found = [];
  for (const [kind, heading, title, note] of KINDS) {
    const held = groupRows(cell, kind);
    if (!held.length) continue;
    const known = held.filter((row) => row.coverage !== null);
    const low = known.reduce((a, b) => (b.coverage < a.coverage ? b : a), known[0]);
    const many = kind === "client" && cell.seeds > 1;
    const extra = !many ? "" : data.partition === "given" ? "; small dots: single seeds" : "; large dots: the first seed's cut, small ones: the other seeds', which hold other nodes";
    const part = kind === "client" && held.length < cell.clients ? `; the ${held.length} worst of ${cell.clients} are shown` : "";
    const worst = kind === "client" && cell.worst ? `The worst is client ${cell.worst[0]}${cell.worst[1] === null ? "" : ` of seed ${cell.worst[1]}`} with ${number(cell.worst[3], 3)}.` : `The lowest is ${low?.name} with ${number(low?.coverage, 3)}.`;
    const columns = [[heading, (r) => r.name], [data.measured ? "Test nodes" : "Nodes", (r) => number(r.n, 1), true], ...(data.measured ? [["Coverage", (r) => number(r.coverage, 3), true]] : []), ["Set size", (r) => number(r.set_size, 3), true],
      ...(many && data.measured ? [["Coverage in single seeds", (r) => r.others.map((o) => number(o.coverage, 3)).join(" "), true]] : [])];
    found.push(h("div", { class: "pair" },
      !data.measured ? null : chart({
        title: `${title}: coverage`, note: `${note}; the line is the target ${cell.level}${extra}${part}.`,
        alt: `Coverage by ${heading} with ${cell.method}, target ${cell.level}. ${worst}`,
        draw: dotPlot(cell, kind, held, "coverage", cell.level), columns, body: held,
      }),
      chart({
        title: `${title}: set size`, note: "Mean number of labels in a set.",
        alt: `Mean set size by ${heading} with ${cell.method}, from ${number(d3.min(held, (r) => r.set_size), 2)} to ${number(d3.max(held, (r) => r.set_size), 2)} labels.`,
        draw: dotPlot(cell, kind, held, "set_size", cell.level), columns, body: held,
      })));
  }
  put("group-charts", found.length ? found : h("p", { class: "notice" }, "These results hold no groups of nodes."));
}

function legend() {
  const shown = new Set(rows.filter((cell) => same(cell, 3)).map((cell) => cell.method));
  put("legend", data.methods.filter((method) => shown.has(method.name)).map((method) => {
    const { colour, symbol } = style.get(method.name);
    const kind = { circle: d3.symbolCircle, square: d3.symbolSquare, triangle: d3.symbolTriangle, diamond: d3.symbolDiamond, star: d3.symbolStar, wye: d3.symbolWye, cross: d3.symbolCross, hexagon: d3.symbolSquare2, times: d3.symbolTimes, plus: d3.symbolPlus }[symbol];
    const icon = d3.create("svg").attr("width", 16).attr("height", 16).attr("viewBox", "-8 -8 16 16").attr("aria-hidden", "true");
    icon.append("path").attr("d", d3.symbol(kind, 62)()).attr("fill", method.option ? colour : "none").attr("stroke", colour).attr("stroke-width", 1.6);
    return h("li", {}, icon.node(), h("span", {}, method.name, " ", h("small", {}, method.words)));
  }));
}

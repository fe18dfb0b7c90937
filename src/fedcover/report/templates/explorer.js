"use strict";
// One node: its probabilities, its set, its neighbours, and why. Sets are those of sets.parquet.
const rowOf = new Map(shownNodes ? shownNodes.explained.map((node, row) => [node, row]) : []);
const turn = {}; // how often each preset was asked for: the next press shows the next such node

function nodeSet(row) {
  const which = shownNodes.sets[cellKey()];
  return which ? shownNodes.patterns[which[row]] : null;
}

const truthOf = (row) => shownNodes.label[shownNodes.explained[row]]; // -1: not known
const PRESETS = {
  ...(data.measured ? { "A miss": () => explained().filter((row) => truthOf(row) >= 0 && !nodeSet(row).includes(truthOf(row))) } : {}),
  "Largest set": () => { const most = d3.max(explained(), (row) => nodeSet(row).length); return explained().filter((row) => nodeSet(row).length === most); },
  "Boundary node": () => d3.sort(explained().filter((row) => shownNodes.lost[shownNodes.explained[row]] > 0), (row) => -shownNodes.lost[shownNodes.explained[row]]),
};
const explained = () => d3.range(shownNodes.explained.length);

function buildExplorer(pick) {
  if (!shownNodes) { put("node", h("p", { class: "notice" }, data.absent)); return; }
  const ids = shownNodes.explained.map((node) => shownNodes.ids[node]);
  const step = (by) => () => {
    const row = rowOf.get(indexOf.get(state.node)) ?? 0;
    pick(ids[(row + by + ids.length) % ids.length]);
  };
  const input = h("input", {
    type: "search", id: "find", list: "ids", autocomplete: "off", spellcheck: "false", placeholder: "an id",
    change: (event) => pick(event.target.value.trim()),
    keydown: (event) => { if (event.key === "Enter") pick(event.target.value.trim()); },
  });
  put("node",
    h("p", { class: "sub" }, `${data.measured ? "Test nodes and nodes" : "Nodes"} without a label have a set; of seed ${data.first_seed}, ${ids.length.toLocaleString("en")} of them can be looked at. The set follows the choices above.`),
    h("div", { class: "search" },
      h("div", { class: "field" }, h("label", { for: "find" }, "Node"), input, h("datalist", { id: "ids" }, ids.map((id) => h("option", { value: id })))),
      h("div", { class: "presets" },
        h("button", { type: "button", class: "plain", "aria-label": "Previous node", click: step(-1) }, "← Previous"),
        h("button", { type: "button", class: "plain", "aria-label": "Next node", click: step(1) }, "Next →"),
        Object.keys(PRESETS).map((name) => h("button", { type: "button", class: "plain", "data-preset": name, click: () => {
          const found = PRESETS[name]();
          const key = `${name}|${cellKey()}`;
          turn[key] = (turn[key] ?? -1) + 1;
          if (found.length) pick(ids[found[turn[key] % found.length]]);
          else absent("There is no such node among those shown.");
        } }, name)))),
    h("p", { class: "visually-hidden", id: "node-status", role: "status" }),
    h("div", { class: "panel", id: "panel" }));
}

// The panel in one sentence, for those who do not see it change.
function say(sentence) {
  const status = document.getElementById("node-status");
  if (status.textContent !== sentence) status.textContent = sentence;
}

function absent(sentence) {
  put("panel", h("p", { class: "notice" }, sentence));
  say(sentence);
}

const labelOf = (label) => label < 0 ? "not known" : data.labels[label];
const listed = (members) => members.map((label) => data.labels[label]);

function showNode() {
  if (!shownNodes) return;
  const id = state.node, node = indexOf.get(id);
  const input = document.getElementById("find");
  if (document.activeElement !== input || indexOf.has(input.value)) input.value = id;
  drawing.selected = node ?? null;
  if (node === undefined) {
    absent(`There is no node ${id} among those shown; type one of the suggested ids.`);
    return;
  }
  const row = rowOf.get(node), truth = shownNodes.label[node], role = shownNodes.roles[shownNodes.role[node]];
  const isAsked = role === "test" || role === "unlabelled";
  const aRole = `${role === "unlabelled" ? "an" : "a"} ${role}`;
  put("panel",
    h("h3", { "data-node": id, tabindex: "-1" }, `Node ${id}`),
    h("p", { class: "sub" }, `Held by client ${shownNodes.clients[shownNodes.client[node]]} · ${role} node · true label ${labelOf(truth)} · ${shownNodes.boundary[node] ? "at the boundary" : "in the interior"}`),
    row === undefined ? h("p", {}, isAsked ? "Its scores are not stored, as the page would grow too large." : `It has no set: it is ${aRole} node. Only test nodes and nodes without a label have one.`) : setOf(row, node, truth),
    neighbours(node));
  const members = row === undefined ? null : nodeSet(row);
  say(members === null ? `Node ${id}: ${aRole} node, ${isAsked ? "its set is not stored on this page" : "which has no set"}.`
    : `Node ${id}: set {${listed(members).join(", ")}}, true label ${truth < 0 ? "not known" : members.includes(truth) ? "in it" : "not in it"}.`);
}

function setOf(row, node, truth) {
  const members = nodeSet(row), C = data.labels.length;
  const probs = shownNodes.probs[state.method].slice(row * C, (row + 1) * C).map((p) => p / 1e4);
  const scores = shownNodes.scores[`${state.method}|${state.score}`].slice(row * C, (row + 1) * C);
  const held = shownNodes.thresholds[cellKey()], ofLabel = Array.isArray(held);
  const named = { client: () => shownNodes.clients[shownNodes.client[node]], group: () => shownNodes.group[node] }[data.calibrate];
  const q = ofLabel ? null : named ? held[named()] : held;
  const qOf = (label) => (ofLabel ? held[label] : q);
  const ranked = d3.sort(d3.range(C), (label) => -probs[label]);
  const reason = (label) => {
    if (members.includes(label) && scores[label] === null) return "in, as the likeliest label always is";
    const own = qOf(label);
    if (own === null) return "in, since q̂ is infinite";
    const score = scores[label] / 1e5, digits = Math.abs(score - own) < 0.005 ? 5 : 2;
    const [left, right] = [score.toFixed(digits), own.toFixed(digits)];
    if (members.includes(label)) return `in, since ${left} ≤ ${right}`;
    return left === right ? `out, just above ${right}` : `out, since ${left} > ${right}`;
  };
  const body = h("tbody", {}, ranked.map((label) => h("tr", { class: members.includes(label) ? "in" : "out" },
    h("th", { scope: "row" }, data.labels[label], label === truth ? h("span", { class: "tag" }, "true") : null),
    h("td", { class: "bar" }, h("i", { style: `width:${Math.max(0.5, 100 * probs[label])}%` })),
    h("td", { class: "n" }, number(probs[label], 3)),
    h("td", { class: "n score" }, scores[label] === null ? "–" : number(scores[label] / 1e5, 3)),
    h("td", { class: "reason" }, reason(label)))));
  return h("div", {},
    h("ul", { class: "chips", "aria-label": "The set", "data-set": JSON.stringify(listed(members)) },
      members.length ? members.map((label) => h("li", { class: label === truth ? "true" : null }, data.labels[label])) : h("li", { class: "none" }, "the empty set")),
    h("p", { class: "why" }, why(members, probs, scores, qOf, ranked, node, truth)),
    scroller("Table: labels, probabilities and scores", h("table", { class: "probs" },
      h("thead", {}, h("tr", {}, ["Label", "Probability", "", "Score", ofLabel ? "Threshold q̂ of the label" : `Threshold q̂ = ${q === null ? "∞" : q.toFixed(3)}`].map((text, i) => h("th", { scope: "col", class: i === 3 ? "n" : null }, text)))),
      body)));
}

function why(members, probs, scores, qOf, ranked, node, truth) {
  const size = members.length, top = ranked[0], C = data.labels.length;
  const first = `${data.labels[top]} has ${percent(probs[top])} of the probability`;
  const parts = [];
  if (ranked.every((label) => qOf(label) === null)) parts.push("Too few calibration nodes for this level: the threshold is infinite, and every set holds all labels.");
  else if (size === 0) parts.push(`The set is empty: even the likeliest label scores above the threshold (${first}). At this level some sets may miss, and the doubtful nodes are those that do.`);
  else if (size === 1) parts.push(`One label fits: ${first}, and no other label scores at or below the threshold.`);
  else if (size === C) parts.push(`All labels fit: the model is at a loss (${first}).`);
  else parts.push(`${size} labels score at or below the threshold, since the model ${probs[top] < 0.5 ? "is undecided" : "leaves room for doubt"}: ${first}, ${data.labels[ranked[1]]} ${percent(probs[ranked[1]])}.`);
  if (truth < 0) parts.push("Its true label is not known.");
  else if (members.includes(truth)) parts.push("The true label is in the set.");
  else if (scores[truth] !== null) parts.push(`The true label, ${data.labels[truth]}, is not in it: its score is ${number(scores[truth] / 1e5 - qOf(truth), 3)} above the threshold.`);
  const lost = shownNodes.lost[node], degree = shownNodes.degree[node];
  const linked = shownNodes.known && state.method.includes("+neighbours");
  if (lost) parts.push(`The cut took ${lost} of its ${count(degree, "neighbour")}, ${linked ? "of which it may get a mean" : "so the model knows less about it"}.`);
  const kept = near[node].filter((other) => !other.lost);
  const alike = kept.filter((other) => shownNodes.label[other.node] === truth).length;
  if (truth < 0) return parts.join(" ");
  if (kept.length === 1) parts.push(`The one neighbour that its client sees here has ${alike ? "the same" : "another"} true label.`);
  else if (kept.length) parts.push(`Of the ${count(kept.length, "neighbour")} that its client sees here, ${alike} ${alike === 1 ? "carries" : "carry"} the same true label.`);
  else if (degree > 0 && lost === degree) parts.push(linked ? "Its client sees none of its neighbours." : "Its client sees none of its neighbours: its features alone decide.");
  return parts.join(" ");
}

function neighbours(node) {
  const around = d3.sort(near[node], (other) => other.lost, (other) => other.node), most = 40;
  const degree = shownNodes.degree[node], shown = Math.min(around.length, most);
  const missing = degree - shown;
  return h("div", {}, h("h4", {}, `${count(degree, "neighbour")}${shownNodes.lost[node] ? `, ${shownNodes.lost[node]} lost in the cut` : ""}`),
    h("ul", { class: "near" }, around.slice(0, most).map((other) => h("li", {},
      h("a", { href: "#", "data-go": shownNodes.ids[other.node] }, shownNodes.ids[other.node]),
      h("span", {}, ` · client ${shownNodes.clients[shownNodes.client[other.node]]} · ${labelOf(shownNodes.label[other.node])}`),
      h("span", { class: other.lost ? "tag lost" : "tag" }, other.lost ? "lost" : "kept")))),
    missing > 0 ? h("p", { class: "sub" }, `${count(missing, "further neighbour")} not shown on this page.`) : null);
}

"use strict";
// Puts the page together, and again whenever a choice changes.
const isDark = () => document.documentElement.dataset.theme === "dark";

function buildTheme() {
  const button = document.getElementById("theme"), wish = matchMedia("(prefers-color-scheme: dark)");
  const set = (dark) => {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.textContent = dark ? "Light" : "Dark";
    paint();
  };
  set(wish.matches);
  wish.addEventListener("change", (event) => set(event.matches));
  button.addEventListener("click", () => set(!isDark()));
}

function pick(id, scroll = false) {
  state.node = id;
  writeAddress();
  showNode();
  paint();
  if (scroll) document.getElementById("explorer").scrollIntoView({ block: "start" });
}

function showVerdict() {
  const cell = view()[0];
  const where = data.kind === "grid" ? `Over all ${rows.length.toLocaleString("en")} cells of this page.` : `At level ${cell.level}, with the score ${cell.score} and the quantile rule ${cell.quantile}.`;
  document.getElementById("verdict-for").textContent = where;
  const cards = data.verdicts[data.kind === "grid" ? "" : viewKey()];
  put("cards", cards.map((card) => h("article", { class: `card ${card.tone}` }, h("h3", {}, card.question), h("p", { class: "answer" }, card.answer), h("p", {}, card.text))));
}

function showNotes() {
  const plain = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value) : String(value));
  const block = (title, entries) => (entries.length ? foldable(title, title, scroller(`Table: ${title}`, table([["", (e) => e[0]], ["", (e) => plain(e[1])]], entries))) : null);
  put("notes",
    data.notes.length ? h("ul", {}, data.notes.map((note) => h("li", {}, note))) : h("p", { class: "sub" }, "Nothing out of the ordinary happened."),
    block("Configuration", Object.entries(data.config ?? {})),
    block("Versions and machine", [...Object.entries(data.versions ?? {}), ...Object.entries(data.hardware ?? {})]),
    block("Seconds by stage", Object.entries(data.seconds ?? {})));
}

function showLead() {
  const lead = document.getElementById("lead");
  if (data.kind === "grid") {
    const of = (name) => [...new Set(rows.map((cell) => cell[name]))];
    lead.textContent = `${list(of("dataset"))}, divided among ${list(of("clients").sort((a, b) => a - b).map(String))} clients, with ${count(data.methods.length, "method")}: how large prediction sets are, and how often they contain the true label.`;
    return;
  }
  const first = rows[0], graph = data.graph;
  const cut = data.cut_share === null ? "" : ` (${data.partition}; ${percent(data.cut_share)} of its edges lie between clients)`;
  lead.textContent = `${graph.nodes ? `A graph of ${graph.nodes.toLocaleString("en")} nodes, divided among ${count(first.clients, "client")} who do not share it${cut}. ` : ""}For each node a set of labels: how large the sets are${data.measured ? ", and how often they contain the true one" : ""}. ${count(data.methods.length, "method")}, ${count(first.seeds, "seed")}.`;
}

function buildContents() {
  const titles = { verdict: "Verdict", compare: "Methods", groups: "Clients and classes", graph: "Graph", explorer: "Nodes", ledger: "Ledger", about: "Notes" };
  put("contents", Object.entries(titles).filter(([id]) => document.getElementById(id)).map(([id, title]) =>
    h("a", { href: `#${id}`, click: (event) => { event.preventDefault(); goTo(id); } }, title)));
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); goTo("verdict"); document.getElementById("verdict").focus(); });
}

const goTo = (id) => document.getElementById(id).scrollIntoView({ block: "start" });

function show() {
  rememberFolds();
  drawControls(changed);
  showVerdict();
  legend();
  compare();
  groups();
  showNode();
  showLedger();
  drawAll();
  paint();
}

function changed() {
  writeAddress();
  show();
}

function start() {
  readAddress();
  if (shownNodes && state.node === null) {
    const first = PRESETS["Largest set"]()[0];
    state.node = first === undefined ? shownNodes.ids[0] : shownNodes.ids[shownNodes.explained[first]];
  }
  buildTheme();
  buildContents();
  showLead();
  showNotes();
  if (document.getElementById("drawing")) { buildDrawing(pick); buildExplorer(pick); }
  show();
  document.addEventListener("click", (event) => {
    const id = event.target.dataset?.go;
    if (id === undefined) return;
    event.preventDefault();
    pick(id);
    const heading = document.querySelector("#panel h3"); // the link that had the focus is gone
    heading?.focus({ preventScroll: true });
    heading?.scrollIntoView({ block: "nearest" });
  });
  addEventListener("hashchange", () => { readAddress(); show(); });
  let width = innerWidth, waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => { drawAll(); paint(); });
  });
  document.documentElement.dataset.ready = "yes";
}

start();

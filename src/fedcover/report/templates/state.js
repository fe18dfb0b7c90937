"use strict";
// What is chosen, its controls, and its address: a view can be linked to by the part after "#".
const DIMENSIONS = ["preset", "variant", "dataset", "clients", "score", "quantile", "alpha", "method"];
const TITLES = {
  preset: "Preset", variant: "Variant", dataset: "Data set", clients: "Clients (K)", score: "Score",
  quantile: "Quantile rule", alpha: "Level", method: "Method (details below)",
};
const WISHES = { quantile: "exact", alpha: "0.1", preset: "default" };
const state = { node: null };

const same = (cell, upTo) => DIMENSIONS.slice(0, upTo).every((name) => String(cell[name]) === state[name]);

function options(place) {
  const name = DIMENSIONS[place];
  const found = [...new Set(rows.filter((cell) => same(cell, place)).map((cell) => cell[name]))];
  if (name === "clients") found.sort((a, b) => a - b);
  if (name === "alpha") found.sort((a, b) => b - a);
  if (name === "method") found.sort((a, b) => order.get(a) - order.get(b));
  return found.map(String);
}

// Every choice must exist together with those before it; where it does not, a sensible one stands in.
function settle() {
  DIMENSIONS.forEach((name, place) => {
    const held = options(place);
    if (held.includes(state[name])) return;
    const wish = name === "method" ? bestMethod() : WISHES[name];
    state[name] = held.includes(wish) ? wish : held[0];
  });
}

const view = () => rows.filter((cell) => same(cell, DIMENSIONS.length - 1));
const viewKey = () => DIMENSIONS.slice(0, -1).map((name) => state[name]).join("|");
const chosenCell = () => rows.find((cell) => same(cell, DIMENSIONS.length));
const cellKey = () => [state.method, state.score, state.quantile, state.alpha].join("|");

function bestMethod() {
  if (data.best) return data.best[viewKey()];
  const kept = view().filter((cell) => ["inside", "above", "promised"].includes(cell.status) && (data.methods[order.get(cell.method)].option));
  return kept.length ? kept.reduce((a, b) => (b.set_size < a.set_size ? b : a)).method : undefined;
}

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of [...DIMENSIONS, "node"]) if (given.has(name)) state[name] = given.get(name);
  settle();
}

function writeAddress() {
  const shown = new URLSearchParams();
  DIMENSIONS.forEach((name, place) => { if (options(place).length > 1) shown.set(name, state[name]); });
  if (state.node !== null) shown.set("node", state.node);
  const address = `#${shown}`;
  if (address !== location.hash) history.replaceState(null, "", address);
}

function label(name, value) {
  if (name === "alpha") return String(Math.round((1 - Number(value)) * 1e6) / 1e6);
  if (name === "quantile") return data.rules[value] ? value : `${value} (no guarantee)`;
  return value === "" ? "as it is" : value;
}

// Few short choices are buttons side by side, many are a list; both are the browser's own controls.
function drawControls(changed) {
  const form = document.getElementById("controls");
  const had = document.activeElement && form.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  form.replaceChildren();
  DIMENSIONS.forEach((name, place) => {
    const held = options(place);
    if (held.length < 2) return;
    const choose = (value) => { state[name] = value; settle(); changed(); };
    const letters = held.map((value) => label(name, value)).join("").length;
    if (held.length <= 5 && letters <= 24) {
      form.append(h("fieldset", {}, h("legend", {}, TITLES[name]),
        h("div", { class: "choice" }, held.map((value) => {
          const radio = h("input", { type: "radio", name, value, "data-key": `${name}=${value}`, change: () => choose(value) });
          radio.checked = value === state[name];
          return h("label", {}, radio, h("span", {}, label(name, value)));
        }))));
    } else {
      const select = h("select", { id: `choose-${name}`, name, "data-key": name, change: (event) => choose(event.target.value) },
        held.map((value) => h("option", { value }, label(name, value))));
      select.value = state[name];
      form.append(h("div", {}, h("label", { class: "name", for: `choose-${name}` }, TITLES[name]), select));
    }
  });
  form.hidden = !form.children.length;
  if (had) form.querySelector(`[data-key="${CSS.escape(had)}"]`)?.focus();
}

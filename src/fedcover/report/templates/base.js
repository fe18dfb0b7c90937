"use strict";
// What all parts of the page share: the data, small formatting, and building of elements.
// Text reaches the page as text nodes only, so no name in the data can become markup.
const data = JSON.parse(document.getElementById("data").textContent);
const names = data.names;

const rows = data.cells.method.map((_, i) => {
  const cell = { index: i, level: 0 };
  for (const key of Object.keys(data.cells)) cell[key] = data.cells[key][i];
  cell.level = Math.round((1 - cell.alpha) * 1e6) / 1e6;
  cell.worst = data.worst[i];
  return cell;
});

const SYMBOLS = ["circle", "square", "triangle", "diamond", "star", "wye", "hexagon", "cross"];
const style = new Map();
let next = 0;
for (const method of data.methods) {
  style.set(method.name, method.option
    ? { colour: `var(--s${next % 8})`, symbol: SYMBOLS[next++ % 8] }
    : { colour: "var(--mark)", symbol: method.name === "central" ? "times" : "plus" });
}
const order = new Map(data.methods.map((method, i) => [method.name, i]));

const short = (text, most = 22) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const number = (value, digits) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const percent = (value) => `${(100 * value).toFixed(value > 0 && value < 0.0995 ? 1 : 0)}%`;
const count = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const list = (items) => items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`;
const bytes = (n) => {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let k = 0;
  while (n >= 1000 && k < units.length - 1) { n /= 1000; k += 1; }
  return `${k === 0 ? n : n.toFixed(n < 10 ? 2 : n < 100 ? 1 : 0)} ${units[k]}`;
};

// h("p", {class: "sub"}, "text", child): an element; functions become listeners.
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const put = (id, ...children) => document.getElementById(id).replaceChildren(...children.flat().filter(Boolean));

// columns: [heading, row → text, numeric?]; the first is the row's own heading.
function table(columns, body, attributes = {}) {
  const cellOf = ([, text, numeric], row, i) => {
    const content = text(row);
    return i === 0 ? h("th", { scope: "row" }, content) : h("td", { class: numeric ? "n" : null }, content);
  };
  return h("table", attributes,
    h("thead", {}, h("tr", {}, columns.map(([name, , numeric]) => h("th", { scope: "col", class: numeric ? "n" : null }, name)))),
    h("tbody", {}, body.map((row) => h("tr", {}, columns.map((column, i) => cellOf(column, row, i))))));
}

// A box that scrolls sideways where it must: it can be reached, and scrolled, by keyboard.
const scroller = (name, ...children) => h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, ...children);

// What a reader has unfolded stays so when it is drawn anew: its key says what is the same.
const unfolded = new Set();
const foldable = (key, summary, ...children) => h("details", { "data-fold": key, open: unfolded.has(key) }, h("summary", {}, summary), ...children);
const rememberFolds = () => document.querySelectorAll("[data-fold]").forEach((fold) => unfolded[fold.open ? "add" : "delete"](fold.dataset.fold));

// A chart with its heading, a sentence for those who do not see it, and its numbers.
function chart({ title, note, alt, draw, columns, body, wide = false }) {
  const place = h("div", { class: "plot", role: "img", "aria-label": alt });
  const figure = h("figure", { class: "chart", "data-title": title },
    h("figcaption", {}, h("strong", {}, title), note ? h("span", {}, note) : null),
    place,
    foldable(title, "The numbers as a table", scroller(`Table: ${title}`, table(columns, body))));
  figure.draw = () => {
    const width = Math.floor(place.clientWidth);
    if (width < 40) return;
    const svg = draw(width);
    svg.setAttribute("aria-hidden", "true");
    place.replaceChildren(svg);
  };
  return figure;
}

const drawAll = () => document.querySelectorAll("figure.chart").forEach((figure) => figure.draw());

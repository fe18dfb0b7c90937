"use strict";
// What left the clients and what reached them, in bytes.
function bars(up, down, most) {
  const part = (n, name) => h("i", { class: name, style: `width:${(100 * n) / most}%` });
  return h("td", { class: "bar", "aria-hidden": "true" }, part(up, "up"), part(down, "down"));
}

function ledgerTable(title, heading, body, most) {
  return scroller(`Table: ${title}`, h("table", { class: "bars" },
    h("thead", {}, h("tr", {}, [heading, "Up", "Down", ""].map((text, i) => h("th", { scope: "col", class: i === 1 || i === 2 ? "n" : null }, text)))),
    h("tbody", {}, body.map(([name, up, down]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "n" }, bytes(up)), h("td", { class: "n" }, bytes(down)), bars(up, down, most))))));
}

function showLedger() {
  if (!document.getElementById("traffic")) return;
  const sent = data.traffic;
  if (!sent || !Object.keys(sent.kinds).length) {
    put("traffic", h("p", { class: "notice" }, sent ? "No method of this run would send anything over a network." : "This run folder holds no ledger.parquet."));
    return;
  }
  const totals = Object.entries(sent.kinds).map(([method, kinds]) => [method, d3.sum(kinds, (k) => k[1]), d3.sum(kinds, (k) => k[2])]);
  const most = d3.max(totals, (t) => t[1] + t[2]);
  const kinds = sent.kinds[state.method];
  const sorted = d3.sort(kinds ?? [], (k) => -(k[1] + k[2])), biggest = d3.max(sorted, (k) => k[1] + k[2]);
  const large = sorted.length > 7 ? 5 : sorted.length, rest = sorted.slice(large);
  const perClient = sent.clients[state.method];
  const detail = kinds ? [
    h("h3", {}, `${state.method}, by kind of message`),
    ledgerTable(`${state.method}, by kind of message`, "Kind", [...sorted.slice(0, large), ...(rest.length ? [[`${count(rest.length, "smaller kind")}`, d3.sum(rest, (k) => k[1]), d3.sum(rest, (k) => k[2])]] : [])], biggest),
    rest.length ? foldable("smaller kinds", "The smaller kinds, one by one", ledgerTable(`${state.method}, the smaller kinds`, "Kind", rest, biggest)) : null,
    foldable("bytes by client", `${state.method}, by client (seed ${data.first_seed})`, ledgerTable(`${state.method}, by client`, "Client", perClient.slice(0, 100), d3.max(perClient, (k) => k[1] + k[2])),
      perClient.length > 100 ? h("p", { class: "sub" }, `${perClient.length - 100} further clients are in ledger.parquet.`) : null),
  ] : [h("p", { class: "sub" }, `${state.method} is a mark: nothing of it would cross a network.`)];
  const clients = Number(state.clients);
  put("traffic",
    h("p", { class: "sub" }, "Features, labels, edges and scores of nodes never leave a client. Models, counts and summaries do; here is every byte, summed over clients and rounds, mean over seeds. Up: from the clients to the server."),
    h("h3", {}, "All messages, by method"),
    ledgerTable("all messages, by method", "Method", totals, most),
    h("p", { class: "sub" }, list(totals.map(([method, up, down]) => `${method}: ${bytes((up + down) / clients)}`)), " for each client, both ways together, on average."),
    detail);
}

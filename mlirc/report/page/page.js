// The page: graphs on the left, views of the chosen one as tabs. A view is made when it is first looked at.

const data = JSON.parse(document.getElementById("data").textContent);
const VIEWS = [["Source", sourceView], ["Graph", graphView], ["Passes", passesView], ["IR", stagesView], ["Ledger", ledgerView], ["Memory", memoryView], ["Code", codeView], ["Time", timeView]];
const state = { graph: -1, view: 0 };
const made = new Map();
const main = el("main", {});
const buttons = [];

function full(...children) { return el("div", { class: "view full" }, children); }
function message(text) { return el("div", { class: "view" }, el("p", { class: "note" }, text)); }

function ledgerView(graph) {
  const columns = [
    { name: "pass", get: (r) => r[0], width: "150px" }, { name: "action", get: (r) => r[1], width: "100px" },
    { name: "subject", get: (r) => r[2], mono: true }, { name: "taken", get: (r) => (r[4] ? "yes" : "no"), width: "64px" },
    { name: "rule", get: (r) => r[3], width: "170px" },
    { name: "numbers", get: (r) => Object.entries(r[5]).map(([k, v]) => `${k.replaceAll("_", " ")} ${v}`).join(", "), width: "240px" },
    { name: "line", get: (r) => place(r[6]), mono: true, width: "180px" },
  ];
  const made = table(columns, graph.ledger, { label: "ledger" });
  const parts = [el("div", { class: "bar" }, made.input, made.told), made.box];
  if (graph.candidates.length) {
    const group = (g) => (g ? (g.ops.join("_") === g.name ? g.name : `${g.name}: ${g.ops.join(" ")}`) : "");
    const side = el("aside", { class: "side pair", hidden: true });
    const pairs = table([
      { name: "pass", get: (r) => r.pass, width: "146px" }, { name: "action", get: (r) => r.action, width: "100px" },
      { name: "first", get: (r) => group(r.first), mono: true }, { name: "second", get: (r) => group(r.second), mono: true },
      { name: "taken", get: (r) => (r.taken ? "yes" : "no"), width: "58px" }, { name: "rule", get: (r) => r.rule, width: "130px" },
      { name: "kind", get: (r) => r.kind, width: "56px" },
      { name: "bytes saved", get: (r) => r.bytes_saved, show: bytes, number: true, width: "96px" },
      { name: "recomputed", get: (r) => r.recomputed, show: count, number: true, width: "96px" },
      { name: "gain, estimated", get: (r) => (r.estimated_gain === null ? null : r.estimated_gain * 1e-9), show: seconds, number: true, width: "120px" },
      ...(graph.candidates.some((r) => r.measured) ? [{ name: "gain, measured", get: (r) => (r.measured && known(r.measured.gain) ? r.measured.gain * 1e-9 : null), show: (v, r) => (v === null ? (r.measured && r.measured.failed) || "" : seconds(v)), number: true, width: "120px" }] : []),
      { name: "line", get: (r) => place(r.line), mono: true, width: "150px" },
    ], graph.candidates, { label: "candidate pairs", picked: (r) => { side.hidden = false; side.replaceChildren(...pairParts(r)); } });
    parts.push(el("div", { class: "bar" }, el("h1", {}, "Pairs that fusion passes looked at"), pairs.input, pairs.told),
      el("div", { class: "split pairs" }, el("div", { class: "column" }, pairs.box), side));
  }
  return full(parts);
}

function pairParts(pair) {
  // What a line of a fusion plan names, and the numbers that the rule compared.
  const limits = Object.entries(pair.limits || {}).map(([k, v]) => [k.replaceAll("_", " "), v]);
  return [
    el("h1", {}, `${pair.pass}: ${pair.action}, ${pair.taken ? "taken" : "refused"} by ${pair.rule}`), facts([...limits, ["rewrite", pair.rewrite]]),
    ...[["first", pair.first], ["second", pair.second]].filter(([, g]) => g).flatMap(([name, g]) => [
      el("h2", {}, `${name}: ${several(g.members.length, "kernel")} of to-kernels`), el("ul", { class: "mono" }, g.members.map((m) => el("li", {}, m))),
      facts([["ops", g.ops.join(" ")], ["parallel", g.parallel], ["inner", g.inner], ["reads", bytes(g.read)], ["writes", bytes(g.written)]])]),
  ];
}

function show() {
  buttons.forEach((b, k) => b.setAttribute("aria-current", String(k - 1 === state.graph)));
  const graph = data.graphs[state.graph];
  const key = graph ? `${state.graph}/${state.view}` : "overview";
  if (!made.has(key)) made.set(key, graph ? VIEWS[state.view][1](graph) : overview(data, (g) => choose(data.graphs.indexOf(g), state.view)));
  const view = made.get(key);
  if (!graph) {
    main.replaceChildren(el("div", { class: "head" }, el("h1", {}, "Overview"), el("span", { class: "facts" }, data.folder)), el("div", { class: "tabs" }), view);
  } else {
    const tabs = VIEWS.map(([name], k) => el("button", { role: "tab", "aria-selected": String(k === state.view), tabindex: k === state.view ? 0 : -1, onclick: () => choose(state.graph, k) }, name));
    const bar = el("div", { class: "tabs", role: "tablist" }, tabs);
    bar.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) { choose(state.graph, (state.view + step + VIEWS.length) % VIEWS.length); main.querySelector("[role=tab][aria-selected=true]").focus(); }
    });
    const told = [functionOf(data, graph), graph.target].filter(Boolean).join(" · ");
    const bad = trouble(graph);
    const notes = [...(bad ? ["runs in eager: " + bad] : []), ...graph.notes];
    main.replaceChildren(el("div", { class: "head" }, el("h1", {}, graph.name), el("span", { class: "facts" }, told), ...notes.map((n) => el("span", { class: "warn" }, n))), bar, view);
  }
  if (!data.bare) history.replaceState(null, "", graph ? `#${graph.number}-${VIEWS[state.view][0].toLowerCase()}` : "#");
}

function choose(graph, view) {
  state.graph = Math.max(-1, Math.min(data.graphs.length - 1, graph));
  state.view = view;
  show();
}

const help = el("dialog", {}, el("h1", {}, "Keys"), el("dl", {}, [
  ["1 … 8", "views of the graph"], ["[ and ]", "the graph before and after"], ["0", "overview"], ["/", "find or filter"],
  ["arrows", "in lists, tables and tabs; in the graph along its edges"], ["+ and -", "zoom the graph"], ["Tab", "from part to part"], ["Esc", "out of a field, or of this"],
].flatMap(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)])));

document.addEventListener("keydown", (event) => {
  const field = event.target instanceof HTMLInputElement;
  if (field && event.key === "Escape") { event.target.blur(); return; }
  if (field || event.ctrlKey || event.metaKey || event.altKey) return;
  const number = "12345678".indexOf(event.key);
  if (number >= 0) choose(Math.max(0, state.graph), number);
  else if (event.key === "0") choose(-1, state.view);
  else if (event.key === "[" || event.key === "]") choose(state.graph + (event.key === "]" ? 1 : -1), state.view);
  else if (event.key === "?") help.showModal();
  else if (event.key === "/") { const input = main.querySelector(".find"); if (input) input.focus(); }
  else return;
  event.preventDefault();
});

function one(only) {
  // A text alone, as notebooks display it.
  document.body.classList.add("bare");
  const text = longText(only.lines, only.title);
  const bar = el("div", { class: "bar" }, el("h1", {}, only.title), finder(text.find, "find in the text"));
  main.append(full(bar, only.facts.length ? el("div", { class: "bar" }, facts(only.facts)) : "", text));
  document.body.append(main);
}

function begin() {
  if (data.only) { one(data.only); return; }
  const list = el("div", { class: "graphs" });
  const entry = (k, ...parts) => { const b = el("button", { onclick: () => choose(k, state.view) }, parts); buttons.push(b); list.append(b); };
  entry(-1, el("span", { class: "number" }, ""), el("span", {}, "Overview"));
  data.graphs.forEach((g, k) => entry(k, el("span", { class: "number" }, String(g.number).padStart(3, "0")), el("span", { class: trouble(g) ? "bad" : null }, g.kind),
    el("span", { class: "facts" }, several(g.kernels.length, "kernel"))));
  if (data.bare) document.body.classList.add("bare");
  document.body.append(
    el("nav", { "aria-label": "graphs" }, el("header", {}, el("h1", {}, "mlirc"), el("p", {}, data.folder)), list, el("footer", {}, el("kbd", {}, "?"), " keys")), main, help);
  const asked = /^#(\d+)-(\w+)$/.exec(location.hash);
  const graph = asked ? data.graphs.findIndex((g) => g.number === Number(asked[1])) : data.graphs.length === 1 ? 0 : -1;
  const view = asked ? VIEWS.findIndex(([name]) => name.toLowerCase() === asked[2]) : 0;
  choose(graph, Math.max(0, view));
}

begin();

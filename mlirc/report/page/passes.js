// What each pass changed, the IR after each stage, and code: a list, and the text of what is chosen.

function chosenText(items, label) {
  // items: {name, group, counts, detail, lines: () => [...]}
  const bar = el("div", { class: "bar" }), column = el("div", { class: "column" });
  const list = el("div", { class: "side steps", tabindex: 0, role: "listbox", "aria-label": label });
  const buttons = [];
  let chosen = -1;
  function choose(k) {
    if (chosen >= 0) buttons[chosen].removeAttribute("aria-current");
    chosen = k;
    const item = items[k], lines = item.lines();
    buttons[k].setAttribute("aria-current", "true");
    buttons[k].scrollIntoView({ block: "nearest" });
    const text = longText(lines.length ? lines : ["no change"], item.name);
    bar.replaceChildren(el("h1", {}, item.name), el("span", { class: "note" }, item.detail || ""), finder(text.find, "find in the text"));
    column.replaceChildren(bar, text);
  }
  let group = null;
  items.forEach((item, k) => {
    if (item.group !== group) list.append(el("h3", {}, item.group || ""));
    group = item.group;
    const button = el("button", { tabindex: -1, role: "option", title: item.name, onclick: () => choose(k) },
      el("span", { class: "n" }, k + 1), el("span", { class: item.same ? "name same" : "name" }, item.name), el("span", { class: "counts" }, item.counts || []));
    buttons.push(button);
    list.append(button);
  });
  list.addEventListener("keydown", (event) => moves(event, items.length, chosen, choose));
  if (items.length) choose(Math.max(0, items.findIndex((x) => !x.same)));
  return full(el("div", { class: "split list" }, list, column));
}

function passesView(graph) {
  if (!graph.passes.length) return message("The capture has no IR after import, of which passes could be run again.");
  return chosenText(graph.passes.map((x) => {
    const [ops, fresh, gone, other] = x.counts;
    const counts = [[fresh, "+", "plus"], [gone, "−", "minus"], [other, "~", "tilde"]].filter(([n]) => n).flatMap(([n, sign, kind]) => [el("span", { class: kind }, sign + n), " "]);
    const detail = [x.seconds === null ? "" : seconds(x.seconds), `${several(ops, "line")} of ops after it`].filter(Boolean).join(" · ");
    return { name: x.name, group: x.stage, counts, detail, same: !x.lines.length, lines: () => x.lines };
  }), "passes");
}

function stagesView(graph) {
  const items = graph.stages.map((x) => ({ name: x.name, group: "IR after the stage", lines: () => x.text.split("\n") }));
  if (graph.aten) items.unshift({ name: "ATen graph", group: "given", lines: () => graph.aten.split("\n") });
  return items.length ? chosenText(items, "stages") : message("The capture has no IR of this graph.");
}

function codeView(graph) {
  const items = (graph.code || []).map((x) => ({ name: x.label ? `${x.name} · ${x.label}` : x.name, group: x.language, detail: x.language, lines: () => x.text.split("\n") }));
  return items.length ? chosenText(items, "kernels") : message("The capture has no generated code of this graph.");
}

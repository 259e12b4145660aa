// The user's lines beside the kernels that they became.

function sourceView(graph) {
  const side = el("aside", { class: "side" }), entries = [], chips = [];
  function choose(k) {
    const kernel = graph.kernels[k];
    entries.forEach(([row, kernels]) => row.classList.toggle("lit", kernels.includes(k)));
    chips.forEach(([chip, j]) => chip.setAttribute("aria-pressed", String(j === k)));
    side.replaceChildren(
      el("h1", { class: "mono" }, kernel.name),
      facts([["launches", kernel.launches], ["reads", bytes(kernel.read)], ["writes", bytes(kernel.written)], ["operations", count(kernel.flops)]]),
      ...(kernel.ops.length ? [el("h2", {}, several(kernel.ops.length, "op")), el("p", { class: "mono" }, kernel.ops.join(" "))] : []),
      el("h2", {}, "of the lines"), el("ul", { class: "mono" }, kernel.lines.map((l) => el("li", { title: l }, place(l)))));
  }
  const list = el("div", { class: "source" });
  let file = null, made = 0;
  function more(number) {
    for (; made < graph.source.length && number > 0; made += 1, number -= 1) {
      const line = graph.source[made];
      if (line.file !== file) list.append(el("h3", {}, line.file || "of no line of the program: modules of torch.nn that a container calls, or what passes made"));
      file = line.file;
      const became = line.kernels.map((k) => {
        const kernel = graph.kernels[k];
        const chip = el("button", { class: "chip", "aria-pressed": "false", onclick: () => choose(k) }, kernel.name + (kernel.launches > 1 ? ` ×${kernel.launches}` : ""));
        chips.push([chip, k]);
        return chip;
      });
      for (const [name, kind, times] of line.calls || []) {
        const what = kind === "aten" ? "call of ATen" : "library call";
        became.push(el("span", { class: "chip k-" + kind, title: what }, name + (times > 1 ? ` ×${times}` : "")));
      }
      const aten = line.aten.map((x) => x[1]).filter((x) => x.startsWith("aten") || x.startsWith("prims"));
      const row = el("div", { class: "entry", title: [...new Set(aten)].join("\n") || null },
        el("span", { class: "n" }, line.line || ""), el("code", {}, line.text || (line.file ? "…" : "")),
        el("span", {}, became.length ? became : el("span", { class: "chip none" }, aten.length ? "no kernel of its own" : "")));
      entries.push([row, line.kernels]);
      list.append(row);
    }
  }
  more(300);
  const column = el("div", { class: "view" }, list);
  column.addEventListener("scroll", () => { if (column.scrollTop + 2 * column.clientHeight > list.clientHeight) more(300); }, { passive: true });
  side.append(el("p", { class: "note" }, "Choose a kernel to see the lines that it was made of."));
  if (!graph.source.length) list.append(el("p", { class: "note" }, "The capture names no source lines of this graph."));
  return full(el("div", { class: "split" }, column, side));
}

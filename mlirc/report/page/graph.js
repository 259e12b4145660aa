// The graph: a box for each kernel with the ops that were fused into it, and for each call.

function graphView(graph) {
  const drawing = graph.drawing;
  if (!drawing) return message("The capture has no IR of this graph.");
  const nodes = drawing.nodes, before = nodes.map(() => []), after = nodes.map(() => []);
  for (const [a, b] of drawing.edges) { before[b].push(a); after[a].push(b); }
  const at = { x: 0, y: -20, scale: 1 };
  let chosen = -1, started = false;
  const side = el("aside", { class: "side" });
  const { box, canvas, soon } = paintedCanvas(`graph of ${nodes.length} kernels and calls; arrow keys go along its edges`, paint);

  function start(width) {
    started = true;
    const left = Math.min(...nodes.map((n) => n.x)), right = Math.max(...nodes.map((n) => n.x + n.w));
    at.scale = Math.max(0.6, Math.min(1, width / (right - left + 60)));
    const first = nodes.reduce((a, b) => (b.y < a.y ? b : a), nodes[0]);
    at.x = right - left + 60 <= width / at.scale ? (left + right) / 2 - width / 2 / at.scale : first.x + first.w / 2 - width / 2 / at.scale;
    at.y = -20;
  }
  function paint(context, width, height) {
    if (!nodes.length) return;
    if (!started) start(width);
    const colours = { kernel: colour("kernel"), library: colour("library"), aten: colour("aten"), input: colour("input"), end: colour("input"), op: colour("panel") };
    const line = colour("line"), text = colour("text"), dim = colour("dim"), accent = colour("accent");
    const top = at.y, bottom = at.y + height / at.scale, left = at.x, right = at.x + width / at.scale;
    context.scale(at.scale, at.scale);
    context.translate(-at.x, -at.y);
    for (const lit of [false, true]) {
      context.beginPath();
      for (const [a, b] of drawing.edges) {
        if ((a === chosen || b === chosen) !== lit) continue;
        const p = nodes[a], q = nodes[b], y1 = p.y + p.h, y2 = q.y;
        if (Math.min(y1, y2) > bottom || Math.max(y1, y2) < top) continue;
        const x1 = p.x + p.w / 2, x2 = q.x + q.w / 2, bend = Math.max(12, Math.min(80, (y2 - y1) / 2));
        context.moveTo(x1, y1);
        context.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
      }
      context.strokeStyle = lit ? accent : dim;
      context.globalAlpha = lit ? 1 : 0.45;
      context.lineWidth = (lit ? 1.6 : 1) / Math.max(0.5, at.scale);
      context.stroke();
    }
    context.globalAlpha = 1;
    const legible = at.scale > 0.4;
    nodes.forEach((n, k) => {
      if (n.y > bottom || n.y + n.h < top || n.x > right || n.x + n.w < left) return;
      context.fillStyle = colours[n.k] || colours.op;
      context.fillRect(n.x, n.y, n.w, n.h);
      context.strokeStyle = k === chosen ? accent : line;
      context.lineWidth = k === chosen ? 2.5 : 1;
      context.strokeRect(n.x, n.y, n.w, n.h);
      if (!legible) return;
      context.fillStyle = text;
      context.font = "600 12px monospace";
      context.fillText(n.t.length > 44 ? n.t.slice(0, 43) + "…" : n.t, n.x + 10, n.y + 19);
      context.fillStyle = dim;
      context.font = "12px monospace";
      n.o.slice(0, 8).forEach((op, j) => context.fillText(op, n.x + 10, n.y + 35 + 16 * j));
      if (n.o.length > 8) context.fillText(`+ ${n.o.length - 8} more`, n.x + 10, n.y + 35 + 16 * 8);
    });
  }
  function choose(k, centre) {
    chosen = k;
    const n = nodes[k];
    if (centre) {
      if (at.scale < 0.5) at.scale = 0.8;
      at.x = n.x + n.w / 2 - box.clientWidth / 2 / at.scale;
      at.y = n.y + n.h / 2 - box.clientHeight / 2 / at.scale;
    }
    const links = (list) => el("ul", {}, list.slice(0, 60).map((j) => el("li", {}, el("button", { onclick: () => choose(j, true) }, nodes[j].t))));
    side.replaceChildren(
      el("h1", {}, n.t), facts([["what", { kernel: "generated kernel", library: "library call", aten: "call of ATen", input: "input", end: "results", op: "op" }[n.k]], ["gives", n.s.join(", ")]]),
      ...(n.o.length ? [el("h2", {}, `${several(n.o.length, "op")} fused`), el("p", { class: "mono" }, n.o.join(" "))] : []),
      ...(n.l.length ? [el("h2", {}, "from"), el("ul", { class: "mono" }, n.l.map((l) => el("li", { title: l }, place(l))))] : []),
      ...(before[k].length ? [el("h2", {}, "reads"), links(before[k])] : []),
      ...(after[k].length ? [el("h2", {}, "read by"), links(after[k])] : []));
    soon();
  }
  movable(canvas, at, soon, (x, y) => {
    const k = nodes.findIndex((n) => x >= n.x && x <= n.x + n.w && y >= n.y && y <= n.y + n.h);
    if (k >= 0) choose(k, false);
  });
  function along(list, right) {
    const sorted = [...list].sort((a, b) => nodes[a].x - nodes[b].x);
    if (sorted.length) choose(sorted[right ? sorted.length - 1 : 0], true);
  }
  function beside(step) {
    const row = nodes.map((_, k) => k).filter((k) => nodes[k].y === nodes[chosen].y).sort((a, b) => nodes[a].x - nodes[b].x);
    const to = row[row.indexOf(chosen) + step];
    if (to !== undefined) choose(to, true);
  }
  canvas.addEventListener("keydown", (event) => {
    const keys = {
      ArrowDown: () => (chosen < 0 ? choose(0, true) : along(after[chosen], false)),
      ArrowUp: () => (chosen < 0 ? choose(0, true) : along(before[chosen], false)),
      ArrowLeft: () => (chosen < 0 ? choose(0, true) : beside(-1)),
      ArrowRight: () => (chosen < 0 ? choose(0, true) : beside(1)),
      Home: () => choose(0, true), End: () => choose(nodes.length - 1, true),
      "+": () => zoom(at, 1.25, box.clientWidth / 2, box.clientHeight / 2), "-": () => zoom(at, 0.8, box.clientWidth / 2, box.clientHeight / 2),
    };
    if (!keys[event.key] || !nodes.length) return;
    event.preventDefault();
    keys[event.key]();
    soon();
  });
  const find = finder((text) => {
    const wanted = text.toLowerCase();
    for (let j = 1; wanted && j <= nodes.length; j += 1) {
      const k = (chosen + j) % nodes.length;
      if (nodes[k].t.toLowerCase().includes(wanted) || nodes[k].l.some((l) => l.toLowerCase().includes(wanted))) { choose(k, true); return true; }
    }
    return false;
  }, "find a kernel, a call or a source line");
  side.append(el("p", { class: "note" }, "Choose a box. The arrow keys go along edges, + and - zoom."));
  const legend = el("span", { class: "legend" }, [["kernel", "kernel"], ["library", "library call"], ["aten", "ATen"], ["input", "input"]].map(
    ([k, name]) => el("span", {}, el("i", { class: "k-" + k }), name)));
  const whole = el("div", { class: "column" }, el("div", { class: "bar" }, find, legend, el("span", { class: "note" }, `${several(nodes.length, "box", "boxes")}, ${several(drawing.edges.length, "edge")}, after ${drawing.stage}`)), box);
  return full(el("div", { class: "split" }, whole, side));
}

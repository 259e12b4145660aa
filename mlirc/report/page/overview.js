// All graphs, and how Dynamo came to them: graph breaks, recompilations, guards.

function overview(data, open) {
  const graphs = table([
    { name: "graph", get: (g) => g.number, number: true, width: "56px" },
    { name: "kind", get: (g) => g.kind, width: "84px" },
    { name: "of", get: (g) => functionOf(data, g) },
    { name: "kernels", get: (g) => g.kernels.length, number: true, width: "70px" },
    { name: "launches", get: (g) => g.kernels.reduce((a, k) => a + k.launches, 0), number: true, width: "78px" },
    { name: "calls", get: (g) => g.calls.reduce((a, c) => a + c.count, 0), number: true, width: "56px" },
    { name: "read", get: (g) => g.facts.read, show: bytes, number: true, width: "80px" },
    { name: "written", get: (g) => g.facts.written, show: bytes, number: true, width: "80px" },
    { name: "operations", get: (g) => g.facts.flops, show: count, number: true, width: "92px" },
    { name: "arena", get: (g) => g.facts.arena, show: bytes, number: true, width: "80px" },
    { name: "compiled in", get: (g) => g.seconds.reduce((a, s) => a + s[1], 0), show: seconds, number: true, width: "100px" },
    ...(data.graphs.some(trouble) ? [{ name: "in eager", get: (g) => trouble(g) }] : []),
  ], data.graphs, { label: "graphs", short: true, picked: (g) => open(g) });
  const frames = data.frames.map(frameEntry);
  const run = runFacts(data.run);
  const breaks = Array.isArray(data.run.graph_breaks) ? data.run.graph_breaks : [];
  return el("div", { class: "view" },
    el("h2", {}, several(data.graphs.length, "graph")), graphs.box,
    el("h2", {}, `${several(data.frames.length, "graph")} of Dynamo's: why each ends, why it was compiled again, its guards`),
    frames.length ? el("div", {}, frames) : el("p", { class: "note" }, "None was kept."),
    ...(breaks.length ? [el("h2", {}, several(breaks.length, "graph break")), ...breaks.map(breakEntry)] : []),
    ...(run.length ? [el("h2", {}, "The run"), facts(run)] : []));
}

const told = (x) => (typeof x === "string" ? x : JSON.stringify(x));

const listed = (x) => (Array.isArray(x) ? x.map(told) : []);

function runFacts(run) {
  const versions = run.versions && typeof run.versions === "object" ? Object.entries(run.versions) : [];
  const known = [
    ["command", listed(run.command).join(" ")], ["folder", run.folder], ["ended with", run.exit], ["error", run.error],
    ["seconds", typeof run.seconds === "number" ? run.seconds.toFixed(1) : ""], ["machine", run.machine],
    ["versions", versions.map(([name, version]) => `${name} ${version}`).join(", ")],
    ["left out", listed(run.left_out).join("; ")], ["in eager", listed(run.skipped).join("; ")],
  ];
  return known.filter(([, v]) => v !== undefined && v !== null && v !== "").map(([k, v]) => [k, told(v)]);
}

function breakEntry(b) {
  if (!b || typeof b !== "object") return el("p", {}, told(b));
  const stack = listed(b.user_stack), lines = String(b.explanation || "").split("\n").map((line) => line.trim()).filter(Boolean);
  return el("details", {}, el("summary", {}, String(b.reason || "graph break"), el("span", { class: "note" }, ` ${stack[0] || ""}`)),
    facts(stack.map((line, k) => [k ? "calls" : "at", line])), ...lines.map((line) => el("p", { class: "note" }, line)));
}

function trouble(graph) {
  return graph.fallback || (graph.failed ? `${graph.failed.step}: ${graph.failed.why}` : "");
}

function functionOf(data, graph) {
  const frame = data.frames.find((f) => f.number === graph.dynamo);
  return frame && frame.frame ? `${frame.frame.function} · ${place(frame.frame.file)}:${frame.frame.line}` : "";
}

function frameEntry(frame) {
  const where = frame.frame || {}, end = frame.ended_by || {};
  const guards = frame.guards.split("\n").filter((line) => line.trim());
  const facing = [
    ["where", where.file ? `${where.file}:${where.line}` : ""],
    ["ends by", (end.graph_break ? "graph break: " : "") + (end.reason || "")],
    ["at", (end.user_stack || []).slice(-1)[0]],
    ["compiled again", frame.recompiled ? told(frame.recompiled) : ""],
    ["in eager", frame.fallback],
    ["ATen graphs", (frame.aten || []).join(", ")],
  ];
  const inner = el("details", {}, el("summary", { class: "note" }, `${several(guards.length, "line")} of guards`));
  inner.addEventListener("toggle", () => { if (inner.open && !inner.querySelector(".long")) inner.append(longText(guards, "guards")); });
  const flag = end.graph_break ? el("span", { class: "warn" }, " graph break") : frame.recompiled ? el("span", { class: "warn" }, " compiled again") : "";
  return el("details", { open: Boolean(end.graph_break || frame.recompiled) },
    el("summary", {}, `${String(frame.number).padStart(3, "0")} ${where.function || ""} `, flag), facts(facing), guards.length ? inner : "");
}

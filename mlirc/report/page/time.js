// Where compile time goes, and, of a profiled graph, each kernel beside its floor.

function bars(rows) {
  // rows: [label, value, text, tick]
  const most = Math.max(...rows.map((r) => r[1]), 1e-30);
  return el("div", { class: "bars" }, rows.flatMap(([label, value, text, tick]) => {
    const fill = el("div", { class: "fill" }), track = el("div", { class: "track" }, fill);
    fill.style.width = (100 * value) / most + "%";
    if (known(tick)) {
      const mark = el("div", { class: "tick", title: "floor: " + seconds(tick) });
      mark.style.left = Math.min(100, (100 * tick) / most) + "%";
      track.append(mark);
    }
    return [el("div", { class: "label", title: label }, label), track, el("div", { class: "value" }, text)];
  }));
}

function timeView(graph) {
  const parts = [];
  if (graph.profile) parts.push(...profileParts(graph.profile));
  else parts.push(el("h2", {}, "Kernels against their floor"), el("p", { class: "note" }, "No profile is kept. `mlirc profile DIR --json FILE` measures one; `mlirc report DIR --profile FILE` shows it here."));
  parts.push(el("h2", {}, "Compiling, by stage"));
  if (graph.seconds.length) parts.push(bars(graph.seconds.map(([name, value]) => [name, value, seconds(value)])));
  else parts.push(el("p", { class: "note" }, "The capture names no times."));
  const slow = graph.passes.filter((x) => x.seconds !== null).sort((a, b) => b.seconds - a.seconds).slice(0, 12);
  if (slow.length) parts.push(el("h2", {}, "Passes, run again for this page, the longest first"), bars(slow.map((x) => [x.name, x.seconds, seconds(x.seconds)])));
  return el("div", { class: "view" }, parts);
}

function profileParts(rows) {
  const columns = [
    { name: "kernel or call", get: (r) => r.label, mono: true },
    { name: "kind", get: (r) => r.kind, width: "88px" },
    { name: "times", get: (r) => r.times, number: true, width: "56px" },
    { name: "time", get: (r) => r.seconds, show: seconds, number: true, width: "76px" },
    { name: "share", get: (r) => r.share, show: percent, number: true, width: "56px" },
    { name: "floor", get: (r) => r.floor, show: seconds, number: true, width: "72px" },
    { name: "of floor", get: (r) => r.of_floor, show: percent, number: true, width: "70px" },
    { name: "bound by", get: (r) => r.bound, width: "92px" },
    { name: "bytes", get: (r) => (r.read === null ? null : r.read + r.written), show: bytes, number: true, width: "76px" },
    { name: "operations", get: (r) => r.flops, show: count, number: true, width: "88px" },
    { name: "lines", get: (r) => (r.lines || []).map(place).join(" "), mono: true, width: "106px" },
  ];
  const made = table(columns, rows, { label: "profile", short: true, order: [3, -1] });
  const most = [...rows].sort((a, b) => b.seconds - a.seconds).slice(0, 20);
  const waited = Math.max(...rows.map((r) => r.waited || 0));
  const busy = waited > 0.1 ? [el("p", { class: "note" }, `Threads waited for a processor ${percent(waited)} of the time: other processes computed, and no row means much.`)] : [];
  return [
    el("h2", {}, `Kernels and calls: ${seconds(rows.reduce((a, r) => a + r.seconds, 0))}`), ...busy, made.box,
    el("h2", {}, "The longest, each with its floor as a mark"), bars(most.map((r) => [r.label + (r.times > 1 ? ` ×${r.times}` : ""), r.seconds, seconds(r.seconds), r.floor])),
    el("h2", {}, "Roofline"), roofline(rows),
  ];
}

function roofline(rows) {
  const dots = rows.filter((r) => r.flops > 0 && r.read + r.written > 0 && r.floor && r.seconds);
  if (!dots.length) return el("p", { class: "note" }, "No kernel of known size does arithmetic.");
  const x = (r) => Math.log10(r.flops / (r.read + r.written)), y = (r) => Math.log10(r.flops / r.seconds), top = (r) => Math.log10(r.flops / r.floor);
  const low = [Math.floor(Math.min(...dots.map(x)) - 0.2), Math.floor(Math.min(...dots.map((r) => Math.min(y(r), top(r)))))];
  const high = [Math.ceil(Math.max(...dots.map(x)) + 0.2), Math.ceil(Math.max(...dots.map((r) => Math.max(y(r), top(r)))))];
  const width = 720, height = 320, left = 66, bottom = 36;
  const across = (v) => left + ((width - left - 16) * (v - low[0])) / Math.max(1, high[0] - low[0]);
  const up = (v) => height - bottom - ((height - bottom - 12) * (v - low[1])) / Math.max(1, high[1] - low[1]);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "roofline" });
  const label = (px, py, text, anchor) => { const t = drawn("text", { x: px, y: py, "text-anchor": anchor }); t.append(text); svg.append(t); };
  for (let v = low[0]; v <= high[0]; v += 1) {
    svg.append(drawn("line", { class: "axis", x1: across(v), x2: across(v), y1: 12, y2: height - bottom }));
    label(across(v), height - bottom + 14, String(10 ** v), "middle");
  }
  for (let v = low[1]; v <= high[1]; v += 1) {
    svg.append(drawn("line", { class: "axis", x1: left, x2: width - 16, y1: up(v), y2: up(v) }));
    label(left - 6, up(v) + 4, count(10 ** v) + "op/s", "end");
  }
  label((left + width) / 2, height - 4, "operations for each byte read or written", "middle");
  for (const r of dots) {
    svg.append(drawn("line", { class: "link", x1: across(x(r)), x2: across(x(r)), y1: up(y(r)), y2: up(top(r)) }));
    svg.append(drawn("line", { class: "ceiling", x1: across(x(r)) - 5, x2: across(x(r)) + 5, y1: up(top(r)), y2: up(top(r)) }));
    const dot = drawn("circle", { class: "dot", cx: across(x(r)), cy: up(y(r)), r: 3 + 6 * Math.sqrt(r.share || 0), tabindex: 0, role: "img", "aria-label": `${r.label}: ${seconds(r.seconds)}, floor ${seconds(r.floor)}` });
    const title = drawn("title", {});
    title.append(`${r.label}: ${seconds(r.seconds)}, floor ${seconds(r.floor)}, bound by ${r.bound}`);
    dot.append(title);
    svg.append(dot);
  }
  const rest = rows.length - dots.length;
  return el("div", {}, svg, el("p", { class: "note" }, `A dot is a kernel, larger where it takes more of the time; the mark above it is what its floor allows.${rest ? ` ${rest} without arithmetic, or of unknown size, are in the table alone.` : ""}`));
}

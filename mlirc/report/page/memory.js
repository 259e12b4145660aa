// The memory plan: each buffer is a box, as wide as it lives and as high as it is large.

function memoryView(graph) {
  const memory = graph.memory;
  if (!memory || !memory.slots.length) return message(memory ? "This graph needs no arena." : "The capture has no memory plan of this graph.");
  const steps = Math.max(1, memory.steps.length), device = memory.slots[0].device;
  const size = memory.arenas[device] || Math.max(...memory.slots.map((s) => s.offset + s.bytes));
  let chosen = null;
  const told = el("span", { class: "note", role: "status" });
  const { box, canvas, soon } = paintedCanvas("live ranges over the arena", paint);
  const edge = { left: 74, top: 12, right: 14, bottom: 30 };
  let across = (k) => k, down = (n) => n;

  function paint(context, width, height) {
    across = (k) => edge.left + ((width - edge.left - edge.right) * k) / steps;
    down = (n) => edge.top + ((height - edge.top - edge.bottom) * n) / size;
    const dim = colour("dim"), line = colour("line");
    context.font = "11px sans-serif";
    context.textAlign = "right";
    for (let k = 0; k <= 4; k += 1) {
      const y = down((size * k) / 4);
      context.fillStyle = dim;
      context.fillText(bytes(Math.round((size * k) / 4)), edge.left - 8, y + 4);
      context.strokeStyle = line;
      context.strokeRect(edge.left, y, width - edge.left - edge.right, 0);
    }
    context.textAlign = "center";
    context.fillText(`${steps} kernels and calls, in order`, (edge.left + width - edge.right) / 2, height - 10);
    context.textAlign = "left";
    for (const s of memory.slots) {
      if (s.device !== device) continue;
      const x = across(s.first), y = down(s.offset), w = Math.max(1.5, across(s.last + 1) - x), h = Math.max(1, down(s.offset + s.bytes) - y);
      context.fillStyle = s === chosen ? colour("accent") : colour("kernel");
      context.fillRect(x, y, w, h);
      context.strokeStyle = s === chosen ? colour("accent") : colour("bar");
      if (w > 3 && h > 3) context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
      if (w > 60 && h > 14) {
        context.fillStyle = s === chosen ? colour("panel") : colour("text");
        context.fillText(s.name, x + 5, y + 12);
      }
    }
  }
  function choose(s) {
    chosen = s;
    told.textContent = `${s.name}: ${bytes(s.bytes)} at ${bytes(s.offset)}, from ${memory.steps[s.first]} (${s.first}) to ${memory.steps[s.last]} (${s.last}), ${place(s.line)}`;
    soon();
  }
  const rows = table([
    { name: "buffer", get: (s) => s.name, mono: true, width: "90px" },
    { name: "offset", get: (s) => s.offset, number: true, width: "100px" },
    { name: "bytes", get: (s) => s.bytes, show: bytes, number: true, width: "100px" },
    { name: "first", get: (s) => s.first, number: true, width: "64px" },
    { name: "last", get: (s) => s.last, number: true, width: "64px" },
    { name: "written by", get: (s) => memory.steps[s.first], mono: true },
    { name: "type", get: (s) => s.type, mono: true },
    { name: "line", get: (s) => place(s.line), mono: true, width: "180px" },
  ], memory.slots, { label: "buffers", picked: choose });
  canvas.addEventListener("pointerdown", (event) => {
    const hit = memory.slots.find((s) => s.device === device && event.offsetX >= across(s.first) && event.offsetX <= across(s.last + 1) && event.offsetY >= down(s.offset) && event.offsetY <= down(s.offset + s.bytes));
    if (hit) { rows.choose(hit); choose(hit); }
  });
  const summary = `arena ${bytes(size)}, at most ${bytes(memory.peak)} live (${percent(memory.peak / Object.values(memory.arenas).reduce((a, n) => a + n, 0))}), ${bytes(memory.slots.reduce((a, s) => a + s.bytes, 0))} of buffers share it${memory.note ? "; " + memory.note : ""}`;
  box.style.flex = "3";
  rows.box.style.flex = "2";
  return full(el("div", { class: "bar" }, el("span", {}, summary), told), box, el("div", { class: "bar" }, rows.input, rows.told), rows.box);
}

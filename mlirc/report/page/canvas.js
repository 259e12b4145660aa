// A canvas that is moved and zoomed; it is drawn anew when its size or the colours change.

function paintedCanvas(label, paint) {
  // paint(context, width, height): in pixels of the page
  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": label });
  const box = el("div", { class: "draw" }, canvas);
  let waiting = false;
  function now() {
    waiting = false;
    const ratio = window.devicePixelRatio || 1, width = box.clientWidth, height = box.clientHeight;
    if (!width || !height) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    paint(context, width, height);
  }
  function soon() {
    if (!waiting) { waiting = true; requestAnimationFrame(now); }
  }
  new ResizeObserver(now).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);
  return { box, canvas, soon };
}

function movable(canvas, at, soon, clicked) {
  // at: {x, y, scale}, where the corner is; dragging moves it, the wheel zooms, a click tells where it was
  let from = null, moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    from = [event.clientX, event.clientY];
    moved = 0;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!from) return;
    moved += Math.abs(event.clientX - from[0]) + Math.abs(event.clientY - from[1]);
    at.x -= (event.clientX - from[0]) / at.scale;
    at.y -= (event.clientY - from[1]) / at.scale;
    from = [event.clientX, event.clientY];
    soon();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (from && moved < 5) clicked(at.x + event.offsetX / at.scale, at.y + event.offsetY / at.scale);
    from = null;
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(at, Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
    soon();
  }, { passive: false });
}

function zoom(at, factor, x, y) {
  const scale = Math.min(2.5, Math.max(0.03, at.scale * factor));
  at.x += x / at.scale - x / scale;
  at.y += y / at.scale - y / scale;
  at.scale = scale;
}

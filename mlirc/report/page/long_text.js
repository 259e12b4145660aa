// Text of any length: only the lines in sight are elements.

const LINE_HEIGHT = 18;
const SIGNS = { "+": "new", "-": "gone", "~": "other", ".": "fold" };

function longText(lines, label) {
  // lines: texts, or [sign, text]; "|+" continues an op that is new
  const rows = el("div", { class: "rows" });
  const space = el("div", {});
  const box = el("div", { class: "long", tabindex: 0, role: "region", "aria-label": label }, space, rows);
  let width = 0, hit = -1;
  for (const line of lines) width = Math.max(width, (typeof line === "string" ? line : line[1]).length);
  space.style.height = lines.length * LINE_HEIGHT + "px";
  space.style.width = (width + 9) * 7.3 + "px";
  rows.style.width = space.style.width;

  function row(k) {
    const line = lines[k];
    if (typeof line === "string") return el("div", { class: k === hit ? "row hit" : "row" }, el("span", { class: "n" }, k + 1), line);
    const sign = line[0].replace("|", "");
    const text = sign === "." ? `      ${several(Number(line[1]), "op")} as before` : ` ${line[0].startsWith("|") && sign !== " " ? sign : line[0]} ${line[1]}`;
    return el("div", { class: `row ${SIGNS[sign] || ""}${k === hit ? " hit" : ""}` }, text);
  }
  function render() {
    const first = Math.max(0, Math.floor(box.scrollTop / LINE_HEIGHT) - 10);
    const last = Math.min(lines.length, first + Math.ceil((box.clientHeight || 900) / LINE_HEIGHT) + 20);
    rows.style.top = first * LINE_HEIGHT + "px";
    const made = [];
    for (let k = first; k < last; k += 1) made.push(row(k));
    rows.replaceChildren(...made);
  }
  box.addEventListener("scroll", render, { passive: true });
  new ResizeObserver(render).observe(box);
  box.find = (text) => {
    const wanted = text.toLowerCase();
    for (let k = 1; wanted && k <= lines.length; k += 1) {
      const at = (hit + k) % lines.length;
      const line = lines[at];
      if ((typeof line === "string" ? line : line[1]).toLowerCase().includes(wanted)) {
        hit = at;
        box.scrollTop = Math.max(0, at * LINE_HEIGHT - box.clientHeight / 3);
        render();
        return true;
      }
    }
    return false;
  };
  render();
  return box;
}

function finder(find, label) {
  const input = el("input", { type: "search", placeholder: "find, Enter for the next", "aria-label": label, class: "find" });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") input.setAttribute("aria-invalid", String(!find(input.value)));
  });
  return input;
}

// A table that is sorted by its heads and filtered by a text: only the rows in sight are elements.

const ROW_HEIGHT = 25;

function table(columns, rows, options) {
  // columns: {name, get, show, number, mono, width}; options: {label, picked, short, filter, order}
  const given = options || {};
  let order = given.order || null, shown = rows, chosen = -1, wanted = "";
  const texts = given.filter === false ? null : rows.map((row) => columns.map((c) => show(c, row)).join("\u0000").toLowerCase());
  const index = new Map(rows.map((row, k) => [row, k]));
  const body = el("tbody", {});
  const heads = columns.map((c, k) => {
    const button = el("button", { onclick: () => sort(k) }, c.name);
    const head = el("th", { scope: "col", class: c.number ? "number" : null, title: c.help || null }, button);
    head.style.width = c.width || "";
    return head;
  });
  const box = el("div", { class: given.short ? "table short" : "table", tabindex: 0, role: "region", "aria-label": given.label },
    el("table", {}, el("thead", {}, el("tr", {}, heads)), body));
  const told = el("span", { class: "note", role: "status" });
  box.firstChild.style.minWidth = columns.reduce((sum, c) => sum + (c.width ? parseInt(c.width, 10) : 150), 0) + "px";

  function show(column, row) {
    const value = column.show ? column.show(column.get(row), row) : column.get(row);
    return value === null || value === undefined ? "" : String(value);
  }
  function sort(k) {
    order = order && order[0] === k ? [k, -order[1]] : [k, columns[k].number ? -1 : 1];
    apply();
  }
  function apply() {
    shown = rows;
    if (wanted && texts) shown = rows.filter((row) => texts[index.get(row)].includes(wanted));
    heads.forEach((head, k) => {
      const here = order && order[0] === k;
      head.setAttribute("aria-sort", here ? (order[1] > 0 ? "ascending" : "descending") : "none");
      head.firstChild.textContent = columns[k].name + (here ? (order[1] > 0 ? " ↑" : " ↓") : "");
    });
    if (order) {
      const { get, number } = columns[order[0]];
      const key = number ? (row) => (known(get(row)) ? Number(get(row)) : -Infinity) : (row) => String(get(row) ?? "");
      const keys = new Map(shown.map((row) => [row, key(row)]));
      shown = [...shown].sort((a, b) => order[1] * (keys.get(a) < keys.get(b) ? -1 : keys.get(a) > keys.get(b) ? 1 : 0));
    }
    told.textContent = shown.length === rows.length ? several(rows.length, "row") : `${shown.length} of ${several(rows.length, "row")}`;
    chosen = -1;
    render();
  }
  function render() {
    const first = Math.max(0, Math.floor(box.scrollTop / ROW_HEIGHT) - 10);
    const last = Math.min(shown.length, first + Math.ceil((box.clientHeight || 900) / ROW_HEIGHT) + 20);
    const made = [space(first)];
    for (let k = first; k < last; k += 1) {
      const cells = columns.map((c) => {
        const text = show(c, shown[k]);
        return el("td", { class: [c.number && "number", c.mono && "mono"].filter(Boolean).join(" ") || null, title: text.length > 14 ? text : null }, text);
      });
      made.push(el("tr", { "aria-selected": k === chosen ? "true" : null, onclick: () => pick(k) }, cells));
    }
    made.push(space(shown.length - last));
    body.replaceChildren(...made);
  }
  function space(number) {
    const cell = el("td", { colspan: columns.length });
    cell.style.height = number * ROW_HEIGHT + "px";
    return el("tr", { class: "space", "aria-hidden": "true" }, cell);
  }
  function pick(k) {
    chosen = k;
    const top = k * ROW_HEIGHT;
    if (top < box.scrollTop) box.scrollTop = top;
    if (top + 2 * ROW_HEIGHT > box.scrollTop + box.clientHeight) box.scrollTop = top + 3 * ROW_HEIGHT - box.clientHeight;
    render();
    if (given.picked) given.picked(shown[k]);
  }
  box.addEventListener("keydown", (event) => { if (event.target === box) moves(event, shown.length, chosen, pick); });
  box.addEventListener("scroll", render, { passive: true });
  new ResizeObserver(render).observe(box);
  const input = el("input", { type: "search", placeholder: "filter", class: "find", "aria-label": "filter " + (given.label || "") });
  input.addEventListener("input", () => { wanted = input.value.toLowerCase(); box.scrollTop = 0; apply(); });
  apply();
  return { box, input, told, choose: (row) => { const k = shown.indexOf(row); if (k >= 0) pick(k); } };
}

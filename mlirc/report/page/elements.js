"use strict";
// Elements, whose children are elements and text: nothing is ever parsed as HTML.

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((x) => x !== null && x !== undefined && x !== false).map((x) => (x instanceof Node ? x : String(x))));
  return made;
}

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "facts" }, ...shown.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function moves(event, items, current, pick) {
  // The arrow keys, Home and End in a list of which one is chosen.
  const to = { ArrowDown: current + 1, ArrowUp: current - 1, Home: 0, End: items - 1, PageDown: current + 15, PageUp: current - 15 }[event.key];
  if (to === undefined || !items) return false;
  event.preventDefault();
  pick(Math.max(0, Math.min(items - 1, to)));
  return true;
}

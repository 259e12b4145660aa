// Numbers as people read them.

const known = (n) => n !== null && n !== undefined && n !== "" && Number.isFinite(Number(n));

// A minus sign, not a hyphen.
const signed = (text) => text.replace("-", "\u2212");

function scaled(n, step, units, text) {
  if (!known(n)) return n === null || n === undefined ? "" : String(n);
  let value = Number(n), k = 0;
  while (Math.abs(value) >= step && k < units.length - 1) { value /= step; k += 1; }
  const digits = k === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return signed(value.toFixed(digits)) + (text ? " " : "") + units[k];
}

const bytes = (n) => scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB"], true);
const count = (n) => scaled(n, 1000, ["", "k", "M", "G", "T"], false);

function seconds(n) {
  if (!known(n)) return "";
  const value = Number(n);
  if (value < 0) return "\u2212" + seconds(-value);
  if (value >= 1) return value.toFixed(2) + " s";
  if (value >= 1e-3) return (value * 1e3).toFixed(value >= 0.1 ? 0 : 1) + " ms";
  if (value < 1e-6) return (value * 1e9).toFixed(0) + " ns";
  return (value * 1e6).toFixed(1) + " µs";
}

const percent = (n) => (known(n) ? (100 * n).toFixed(n < 0.1 ? 1 : 0) + "%" : "");
const several = (n, what, many) => `${n} ${n === 1 ? what : many || `${what}s`}`;
const place = (line) => String(line || "").replace(/^.*\/(?=[^/]+$)/, "");

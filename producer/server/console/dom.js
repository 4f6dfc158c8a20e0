// Helpers of all views: elements, requests, and texts for people. Values from logs are set as text, never as HTML.

export const $ = (selector, root = document) => root.querySelector(selector);

const SVG = new Set(["svg", "rect", "title", "line", "text"]);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG.has(tag) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.map(child => child instanceof Node ? child : String(child)));
  return element;
}

// Requests ----------------------------------------------------------------------------------------------------------

export class Unreachable extends Error {}
export class KeyWanted extends Error {}

const KEY = "loghub-console-key";  // kept in this tab only, and only if the server has keys of its own

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (id, secret) => sessionStorage.setItem(KEY, btoa(String.fromCharCode(...new TextEncoder().encode(`${id}:${secret}`)))),
  isLocal: () => atob(key.get() ?? "").startsWith("local-"),
  forget: () => sessionStorage.removeItem(KEY),
};

export async function api(path, parameters = {}, options = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const headers = key.get() ? { Authorization: `Basic ${key.get()}` } : {};
  let answer, content;
  try {
    answer = await fetch(`/console/api/${path}?${new URLSearchParams(given)}`, { ...options, headers, credentials: "omit" });
    content = await answer.json();
  } catch { throw new Unreachable("The server does not answer: it may have ended. Trying again every 2 seconds."); }
  if (answer.status === 401 && answer.headers.has("WWW-Authenticate")) throw new KeyWanted(content.errorMessage);
  if (!answer.ok) throw new Error(content.errorMessage);
  return content;
}

// Texts -------------------------------------------------------------------------------------------------------------

export const count = number => Math.round(number).toLocaleString("en");
export const rate = number => number >= 100 ? count(number) : number.toFixed(1);
export const time = seconds => seconds === null ? "" : new Date(seconds * 1000).toISOString().replace("T", " ").replace(/\.?0*Z$/, "");
export const exactTime = seconds => new Date(seconds * 1000).toISOString().replace("T", " ").replace("Z", "");
export const many = (number, name) => `${count(number)} ${name}${number === 1 ? "" : "s"}`;

export function bytes(number) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (number < 1024) return `${number.toFixed(unit === "B" ? 0 : 1)} ${unit}`;
    number /= 1024;
  }
  return `${number.toFixed(1)} TiB`;
}

// Control characters are shown as pictures: some are invisible, others hide the text after them. Characters that reverse
// the direction are shown by number: they make a name that ends in ".exe" look like "exe.png".
export const visible = text => text
  .replace(/[\0-\x08\x0b-\x1f\x7f]/g, sign => String.fromCharCode(sign === "\x7f" ? 0x2421 : 0x2400 + sign.charCodeAt(0)))
  .replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, sign => `[U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);

// Text of a log, isolated from its neighbours whatever its writing direction.
export const value = text => make("bdi", {}, visible(text));

// Tables ------------------------------------------------------------------------------------------------------------

// Only changed rows are drawn again, and the focus stays.
export function table(place, heads, rows, empty) {
  const before = JSON.stringify(rows, (name, cell) => cell instanceof Node ? cell.outerHTML : cell);
  if (place.shown === before) return;
  place.shown = before;
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  const kind = column => heads[column].startsWith("#") ? "number" : null;
  const head = make("tr", {}, ...heads.map((name, column) => make("th", { scope: "col", class: kind(column) }, name.replace("#", ""))));
  const line = ({ cells, class: look = null }) => make("tr", { class: look },
    ...cells.map((cell, column) => make("td", { class: kind(column) }, typeof cell === "number" ? count(cell) : cell ?? "")));
  const body = rows.length ? make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" },
    make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows.map(line)))) : make("p", { class: "empty" }, ...empty);
  place.replaceChildren(body);
  if (focused) $(`[data-focus="${focused}"]`, place)?.focus();
}

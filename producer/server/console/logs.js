// A log as an item of a list: one line that opens into a table of its fields.

import { $, api, bytes, make, time, value } from "./dom.js";

const LINE = 600;       // characters of a line
const FIELD = 160;      // characters of a field in the line
const SHOWN = 20000;    // characters of a value in the table of fields, until the user asks for all
const quiet = name => name.startsWith("__");

// Words of a query, in quotation marks.
export const quoted = text => `"${text.replace(/[\\"]/g, "\\$&")}"`;

// A query finds whole words only, so a cut text is not searchable.
export const canFilter = text => text.length < 256;

const cut = (text, length) => text.length > length ? `${text.slice(0, length)}…` : text;

function line(fields) {
  const parts = [];
  let left = LINE;
  for (const [name, text] of fields) {
    if (left < 0) { parts.push("…"); break; }
    const shown = cut(text, FIELD);
    left -= name.length + shown.length;
    parts.push(make("span", { class: "pair" }, make("b", {}, value(cut(name, FIELD)), "="), value(shown)), " ");
  }
  return parts;
}

function whole(text) {
  const shown = value(text.slice(0, SHOWN));
  if (text.length <= SHOWN) return [shown];
  const all = make("button", { type: "button", onclick: () => { shown.replaceWith(value(text)); all.remove(); } },
    `Show all ${bytes(new Blob([text]).size)}`);
  return [shown, " ", all];
}

function table(log, use) {
  const rows = Object.entries(log.fields).filter(([, text]) => text !== "").map(([name, text]) => make("tr", {},
    make("th", { scope: "row" }, value(name)), make("td", {}, ...whole(text)),
    make("td", {}, use.filter && name !== "__time__" && canFilter(text)
      ? make("button", { type: "button", "aria-label": `Only logs with this value of ${name}`, onclick: () => use.filter(name, text) }, "only") : "")));
  return make("div", { class: "log" }, make("table", {}, make("tbody", {}, ...rows)),
    make("button", { type: "button", onclick: () => use.around(log) }, "Logs around it"));
}

// use: around(log) shows its neighbours; filter(name, text), if given, narrows the search.
export function logItem(log, use, here = false) {
  const fields = Object.entries(log.fields).filter(([name, text]) => name !== "__time__" && text !== "");
  const ordered = [...fields.filter(([name]) => !quiet(name)), ...fields.filter(([name]) => quiet(name) && !name.startsWith("__tag__:__") && name !== "__time_ns_part__")];
  const details = make("details", { ontoggle: () => { if (details.open && details.children.length === 1) details.append(table(log, use)); } },
    make("summary", {}, make("time", {}, time(log.time)), " ", ...line(ordered)));
  return make("li", { class: here ? "here" : null, "aria-current": here ? "true" : null }, details);
}

export async function showNeighbours(place, log) {
  const found = await api("neighbours", { ...place, shard: log.shard, position: log.position, index: log.index });
  const dialog = $("#neighbours"), use = { around: other => showNeighbours(place, other) };
  $("ol", dialog).replaceChildren(...found.before.map(one => logItem(one, use)), logItem(found.log, use, true), ...found.after.map(one => logItem(one, use)));
  if (!dialog.open) dialog.showModal();
  $(".here", dialog).scrollIntoView({ block: "center" });
}

// Files -------------------------------------------------------------------------------------------------------------

// Spreadsheets may run text with such a start as a formula, some also with full-width signs. An apostrophe before it
// makes it text.
const FORMULA = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/;
const NUMBER = /^[+-]?\d+(\.\d+)?(e[+-]?\d+)?$/i;

const cell = text => `"${(FORMULA.test(text) && !NUMBER.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;

export function asCsv(rows) {
  const names = [...new Set(rows.flatMap(row => Object.keys(row)))];
  const lines = rows.map(row => names.map(name => Object.hasOwn(row, name) ? row[name] : ""));
  return `${[names, ...lines].map(line => line.map(cell).join(",")).join("\r\n")}\r\n`;
}

export function save(name, text, type) {
  const link = make("a", { download: name, href: URL.createObjectURL(new Blob([text], { type })) });
  link.click();
  URL.revokeObjectURL(link.href);
}

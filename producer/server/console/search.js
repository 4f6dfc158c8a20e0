// The search: logs, their number over time, and the commonest values of their fields.

import { $, api, count, make, many, table, time, value, visible } from "./dom.js";
import { asCsv, canFilter, logItem, quoted, save, showNeighbours } from "./logs.js";

const PAGE = 50, FILE = 1000;   // logs of a page, and of a file
const OPEN_FIELDS = 8;          // further fields are closed at first
const SECONDS = 1;              // after which the server returns the counts so far

const state = { offset: 0, shown: 0, parts: [], rows: null, wanted: null, cursor: null };   // rows: of SQL

// A query finds words, so a clicked value becomes a word in quotation marks.
export function filtered(query, name, text) {
  const part = `${quoted(name)}: ${quoted(text)}`;
  return query.trim() ? `(${query.trim()}) and ${part}` : part;
}

// Histogram -----------------------------------------------------------------------------------------------------------

function drawHistogram(parts) {
  state.parts = parts;
  const most = Math.max(0, ...parts.map(part => part.count));
  const bars = parts.map((part, x) => {
    const height = part.count ? Math.max(1.5, 100 * part.count / most) : 0;
    return make("rect", { class: "bar", x: x + 0.06, y: 100 - height, width: 0.88, height }, make("title", {}, described(x, x)));
  });
  const svg = make("svg", { viewBox: `0 0 ${Math.max(1, parts.length)} 100`, preserveAspectRatio: "none", "aria-hidden": "true" },
    ...bars, make("rect", { class: "chosen", x: 0, y: 0, width: 0, height: 100 }));
  const edges = parts.length ? [parts[0].from, parts[Math.floor(parts.length / 2)].from, parts.at(-1).to] : [];
  $("#histogram").replaceChildren(make("span", { class: "most", "aria-hidden": "true" }, most ? count(most) : ""), svg,
    make("div", { class: "axis", "aria-hidden": "true" }, ...edges.map(edge => make("span", {}, time(edge)))));
  mark();
}

const described = (first, last) => `${time(state.parts[first].from)} to ${time(state.parts[last].to)}: `
  + many(state.parts.slice(first, last + 1).reduce((sum, part) => sum + part.count, 0), "log");

// Marks the selected parts, by pointer or by keys.
function mark() {
  const chosen = $("#histogram .chosen"), cursor = state.cursor;
  if (!chosen) return;
  const [first, last] = cursor ? [Math.min(...cursor), Math.max(...cursor)] : [0, -1];
  chosen.setAttribute("x", first);
  chosen.setAttribute("width", last + 1 - first);
  if (cursor && state.parts[last]) $("#how").textContent = described(first, last);
}

export function watchHistogram(choose) {
  const box = $("#histogram"), last = () => state.parts.length - 1;
  let dragging = false;
  const at = event => {
    const { left, width } = $("svg", box).getBoundingClientRect();
    return Math.max(0, Math.min(last(), Math.floor((event.clientX - left) / width * state.parts.length)));
  };
  const take = () => {
    if (!state.cursor) return;
    const [first, end] = [Math.min(...state.cursor), Math.max(...state.cursor)];
    state.cursor = null;
    choose(state.parts[first].from, state.parts[end].to);
  };
  box.addEventListener("pointerdown", event => {
    if (event.button !== 0 || last() < 0) return;
    dragging = true;
    state.cursor = [at(event), at(event)];
    box.setPointerCapture(event.pointerId);
    mark();
  });
  box.addEventListener("pointermove", event => { if (dragging) { state.cursor[1] = at(event); mark(); } });
  box.addEventListener("pointerup", () => { if (dragging) { dragging = false; take(); } });
  box.addEventListener("pointercancel", () => { dragging = false; state.cursor = null; mark(); });
  box.addEventListener("keydown", event => {
    const way = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") { state.cursor = null; mark(); }
    else if (event.key === "Enter") take();
    else if (way && last() >= 0) {
      const [from, to] = state.cursor ?? [last() + 1, last() + 1], next = Math.max(0, Math.min(last(), to + way));
      state.cursor = [event.shiftKey && state.cursor ? from : next, next];
      mark();
    } else return;
    event.preventDefault();
  });
}

// The server counts in steps and returns where to continue, so that the counts so far are shown at once.
async function countAll(wanted, isOver) {
  let sums = null, before = null;
  do {
    const found = await api("histogram", { ...wanted, seconds: SECONDS, before });
    if (isOver()) return;
    before = found.before;
    sums = sums ? sums.map((part, x) => ({ ...part, count: part.count + found.parts[x].count })) : found.parts;
    drawHistogram(sums);
    const total = sums.reduce((sum, part) => sum + part.count, 0);
    tellTotal(total, before !== null);
  } while (before !== null);
}

function tellTotal(total, isCounting) {
  state.total = total;
  const rows = state.rows ? `${many(state.rows.length, "row")} from ` : "";
  const page = state.shown ? `, ${count(state.offset + 1)} to ${count(state.offset + state.shown)} shown, the newest first` : "";
  $("#total").textContent = isCounting ? `${rows}${many(total, "log")} so far …` : `${rows}${many(total, "log")}${page}`;
}

// Fields ----------------------------------------------------------------------------------------------------------------

const rank = field => 2 * field.name.startsWith("__") + (field.values > 100);

function drawFields(found, filter) {
  const choice = (field, [text, logs]) => {
    const bar = make("progress", { max: found.sampled, value: logs, "aria-hidden": "true" });
    const label = [value(text || "(empty)"), make("span", { class: "quiet" }, count(logs)), bar];
    return canFilter(text) ? make("button", { type: "button", title: "Only logs with this value", onclick: () => filter(field.name, text) }, ...label)
      : make("p", { title: "The value is cut, and a query finds whole words only" }, ...label);
  };
  // The application's fields first, those with few values before those with many, then the protocol's.
  const ordered = [...found.fields].filter(field => !["__tag__:__pack_id__", "__time_ns_part__"].includes(field.name))
    .sort((one, other) => rank(one) - rank(other));
  $("#fields").replaceChildren(
    make("h2", {}, "Fields"),
    make("p", { class: "quiet" }, found.sampled ? `of the last ${many(found.sampled, "log")} to arrive` : "none"),
    ...ordered.map((field, index) => make("details", { open: index < OPEN_FIELDS },
      make("summary", {}, value(field.name), " ", make("span", { class: "quiet" }, field.values >= 1000 ? "1,000+" : count(field.values))),
      ...field.top.map(pair => choice(field, pair)))));
}

// Rows ------------------------------------------------------------------------------------------------------------------

// Rows of SQL, shown in place of logs and fields.
function drawRows(found) {
  state.rows = found.rows ?? null;
  $("#rows").hidden = !state.rows;
  $("#search .columns").hidden = Boolean(state.rows);
  if (!state.rows) return;
  const head = (name, type) => /int|double|decimal|float/.test(type) || name.startsWith("#") ? `#${name}` : name;
  table($("#rows"), found.names.map((name, column) => head(name, found.types[column])),
    found.rows.map(row => ({ cells: found.names.map(name => value(row[name])) })), ["The statement returns no rows."]);
  for (const id of ["#newer", "#older"]) $(id).disabled = true;
  $("#json").disabled = $("#csv").disabled = !found.rows.length;
}

// The view ----------------------------------------------------------------------------------------------------------------

export function restart() { Object.assign(state, { offset: 0, cursor: null }); $("#how").textContent = HOW; }
const HOW = $("#how").textContent;

export async function show(wanted, { isOver, filter, everything }) {
  Object.assign(state, { wanted, shown: 0, rows: null });
  $("#total").textContent = "Searching …";
  const place = { project: wanted.project, logstore: wanted.logstore };
  const page = async () => {
    const found = await api("search", { ...wanted, reverse: true, line: PAGE, offset: state.offset });
    if (isOver()) return;
    drawRows(found);
    if (state.rows) {
      if (state.total !== undefined) tellTotal(state.total, false);
      return;
    }
    state.shown = found.logs.length;
    const use = { around: log => showNeighbours(place, log), filter };
    $("#logs").replaceChildren(...found.logs.map(log => logItem(log, use)), ...(found.logs.length ? [] : [nothing(everything)]));
    $("#newer").disabled = state.offset === 0;
    $("#older").disabled = found.logs.length < PAGE;
    $("#json").disabled = $("#csv").disabled = !found.logs.length;
    if (state.total !== undefined) tellTotal(state.total, false);
  };
  const sample = async () => {
    if (isOver() || state.rows) return;
    const found = await api("fields", { ...wanted, seconds: 5 });
    if (!isOver()) drawFields(found, filter);
  };
  state.total = undefined;
  // The results of the last search are pale until new ones replace them, and are removed if there are none.
  $("#search").setAttribute("aria-busy", "true");
  try {
    const counting = countAll(wanted, isOver);
    await Promise.all([page().then(sample).then(() => { if (!isOver()) $("#search").removeAttribute("aria-busy"); }), counting]);
  } catch (error) {
    if (!isOver()) clear();
    throw error;
  }
}

function clear() {
  $("#search").removeAttribute("aria-busy");
  drawHistogram([]);
  drawRows({});
  $("#total").textContent = "";
  for (const id of ["#logs", "#fields"]) $(id).replaceChildren();
  for (const id of ["#newer", "#older", "#json", "#csv"]) $(id).disabled = true;
}

const nothing = everything => make("li", { class: "empty" }, "No log matches in this logstore and time range. ",
  everything ? make("button", { type: "button", onclick: everything }, "Search all times") : "");

export function turn(way) { state.offset = Math.max(0, state.offset + way * PAGE); }

export async function download(kind) {
  const rows = [...state.rows ?? []];
  for (let left = state.rows ? 0 : FILE; left > 0; left -= 100) {
    const found = await api("search", { ...state.wanted, reverse: true, line: 100, offset: state.offset + rows.length });
    rows.push(...found.logs.map(log => log.fields));
    if (found.logs.length < 100) break;
  }
  const name = `${visible(state.wanted.logstore)}.${kind}`;
  if (kind === "csv") save(name, asCsv(rows), "text/csv;charset=utf-8");
  else save(name, `${JSON.stringify(rows, null, 1)}\n`, "application/json");
  return state.rows ? `${many(rows.length, "row")} in the file.` : `${many(rows.length, "log")} in the file: what matches from this page on, 1,000 at most.`;
}

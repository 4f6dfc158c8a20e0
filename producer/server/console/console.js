// The console: one view at a time over the JSON below /console/api. Whatever comes from a log is set as text, never as HTML.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const VIEWS = ["logstores", "search", "tail", "requests", "faults", "producers"];
const PAGE = 50;
const LIVE = { logstores: 2000, tail: 1000, requests: 2000, faults: 2000, producers: 2000 };  // milliseconds between two looks
const state = { view: "logstores", offset: 0, after: null, paused: false, shown: [], parts: [], timer: null, turn: 0 };

function make(tag, attributes = {}, ...children) {
  const element = document.createElementNS(/^(rect|title)$/.test(tag) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children.map(child => child instanceof Node ? child : String(child)));
  return element;
}

async function api(path, parameters = {}, options = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null);
  const answer = await fetch(`/console/api/${path}?${new URLSearchParams(given)}`, options);
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.errorMessage);
  return content;
}

// Texts -----------------------------------------------------------------------------------------------------------

const count = number => Math.round(number).toLocaleString();
const time = seconds => seconds === null ? "" : new Date(seconds * 1000).toISOString().replace("T", " ").replace(/\.?0*Z$/, "");

function bytes(number) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (number < 1024) return `${number.toFixed(unit === "B" ? 0 : 1)} ${unit}`;
    number /= 1024;
  }
  return `${number.toFixed(1)} TiB`;
}

const quoted = text => `"${text.replace(/[\\"]/g, "\\$&")}"`;

function table(view, heads, rows) {
  const head = make("tr", {}, ...heads.map(name => make("th", { scope: "col" }, name)));
  const cells = row => row.map(cell => make("td", { class: typeof cell === "number" ? "number" : null }, typeof cell === "number" ? count(cell) : cell ?? ""));
  $(`#${view} table`).replaceChildren(head, ...rows.map(row => make("tr", {}, ...cells(row))));
}

// What to look at ---------------------------------------------------------------------------------------------------

function place() {
  const [project, logstore] = $("#logstore").value.split("/");
  return { project, logstore };
}

function range() {
  const span = $("#span").value, now = Math.floor(Date.now() / 1000) + 1;
  if (span === "all") return { from: 0, to: 4294967296 };
  if (span !== "chosen") return { from: now - Number(span), to: now };
  const seconds = id => Math.floor(Date.parse($(id).value + "Z") / 1000) || 0;
  return { from: seconds("#from"), to: seconds("#to") || now };
}

function choose(from, to) {
  for (const [id, seconds] of [["#from", from], ["#to", to]]) $(id).value = new Date(seconds * 1000).toISOString().slice(0, 19);
  $("#span").value = "chosen";
  submit();
}

function filter(name, value) {
  const part = `${quoted(name)}: ${quoted(value)}`, query = $("#query").value.trim();
  $("#query").value = query ? `(${query}) and ${part}` : part;
  submit();
}

function submit() {
  Object.assign(state, { offset: 0, after: null });
  $("#tailed").replaceChildren();
  look();
}

// Views ---------------------------------------------------------------------------------------------------------------

function logItem(log, here = false) {
  const fields = Object.entries(log.fields).filter(([name, text]) => name !== "__time__" && text !== "");
  const more = make("button", { type: "button", onclick: () => showNeighbours(log), title: "Neighbours of this log" }, "around");
  return make("li", { class: here ? "here" : null }, make("b", {}, time(log.time)), " ", more, " ",
    ...fields.flatMap(([name, text]) => [make("b", {}, `${name}=`), text, "  "]));
}

async function showNeighbours(log) {
  try {
    const found = await api("neighbours", { ...place(), shard: log.shard, position: log.position, index: log.index });
    $("#neighbours ol").replaceChildren(...found.before.map(one => logItem(one)), logItem(found.log, true), ...found.after.map(one => logItem(one)));
    if (!$("#neighbours").open) $("#neighbours").showModal();
  } catch (error) { tell(error.message); }
}

function drawHistogram(parts) {
  const svg = $("#histogram"), most = Math.max(1, ...parts.map(part => part.count));
  state.parts = parts;
  svg.setAttribute("viewBox", `0 0 ${Math.max(1, parts.length)} 100`);
  svg.replaceChildren(...parts.map((part, x) => {
    const height = part.count ? Math.max(1, 100 * part.count / most) : 0;
    return make("rect", { x: x + 0.05, y: 100 - height, width: 0.9, height }, make("title", {}, `${time(part.from)}: ${count(part.count)}`));
  }), make("rect", { class: "chosen", x: 0, y: 0, width: 0, height: 100 }));
}

function drawFields(found) {
  const value = (field, [text, logs]) => make("button", { type: "button", title: "Only logs with this value",
    disabled: text === "" ? "" : null, onclick: () => filter(field.name, text) },
    make("span", {}, text || "(empty)"), make("span", {}, count(logs)));
  $("#fields").replaceChildren(make("p", {}, `Fields of ${count(found.sampled)} logs`),
    ...found.fields.flatMap(field => [make("h3", {}, field.name), ...field.top.map(pair => value(field, pair))]));
}

const show = {
  async logstores() {
    const found = await api("logstores");
    fillLogstores(found.logstores);
    table("logstores", ["Project", "Logstore", "Shard", "Status", "Logs", "Size", "Logs/s", "Bytes/s", "First", "Last", "Days kept"],
      found.logstores.flatMap(one => one.shards.map(shard => [one.project, one.logstore, String(shard.shard), shard.status, shard.logs,
        bytes(shard.bytes), shard.logs_per_second.toFixed(1), bytes(shard.bytes_per_second), time(shard.first), time(shard.last), String(one.ttl)])));
  },
  async search(turn) {
    const wanted = { ...place(), ...range(), query: $("#query").value };
    const [found, counted] = await Promise.all([
      api("search", { ...wanted, reverse: true, line: PAGE, offset: state.offset }), api("histogram", wanted)]);
    if (turn !== state.turn) return;
    state.shown = found.logs;
    $("#logs").replaceChildren(...found.logs.map(log => logItem(log)));
    const shown = found.logs.length ? `, ${state.offset + 1} to ${state.offset + found.logs.length} shown, the newest first` : "";
    $("#total").textContent = `${count(counted.total)} logs${shown}`;
    drawHistogram(counted.parts);
    const sampled = await api("fields", wanted);
    if (turn === state.turn) drawFields(sampled);
  },
  async tail(turn) {
    if (state.paused) return;
    const found = await api("tail", { ...place(), query: $("#query").value, after: state.after });
    if (turn !== state.turn) return;
    state.after = found.after;
    $("#tailed").prepend(...found.logs.reverse().map(log => logItem(log)));
    while ($("#tailed").children.length > 1000) $("#tailed").lastChild.remove();
  },
  async requests() {
    const found = await api("requests");
    table("requests", ["Time", "Operation", "Logstore", "Status", "Bytes", "Logs", "ms", "Client"], found.requests.map(one => [
      time(one.time), one.operation, `${one.project}/${one.logstore}`,
      make("span", { class: one.status === 200 ? null : "bad" }, `${one.status ?? "no answer"} ${one.error ?? ""}`),
      one.bytes, one.logs, String(one.milliseconds), one.user_agent]));
  },
  async faults() {
    const found = await api("faults"), kinds = $("#fault select");
    if (!kinds.children.length) kinds.append(...found.kinds.map(kind => make("option", {}, kind)));
    table("faults", ["Fault", "For", "Met", "Left", ""], found.faults.map(one => [
      one.what, Object.entries(one.for).map(pair => pair.join(" ")).join(", ") || "all", one.fired, one.left === null ? "no end" : one.left,
      make("button", { type: "button", onclick: () => removeFault(one.id) }, "Remove")]));
  },
  async producers() {
    const found = await api("producers");
    table("producers", ["User agent", "Address", "Requests", "Refused", "Logs", "Size", "ms", "Last"], found.producers.map(one => [
      one.user_agent, one.address, one.requests, one.errors, one.logs, bytes(one.bytes), String(one.milliseconds), time(one.seen)]));
  },
};

function fillLogstores(logstores) {
  const names = logstores.map(one => `${one.project}/${one.logstore}`), select = $("#logstore"), chosen = select.value;
  if (names.join() === [...select.options].map(option => option.value).join()) return;
  select.replaceChildren(...names.map(name => make("option", {}, name)));
  if (names.includes(chosen)) select.value = chosen;
}

function tell(text) { $("#message").textContent = text; }

async function look() {
  clearTimeout(state.timer);
  const turn = ++state.turn, view = state.view;
  try {
    if ("search tail".includes(view) && !$("#logstore").value) fillLogstores((await api("logstores")).logstores);
    await show[view](turn);
    if (turn === state.turn) tell("");
  } catch (error) { if (turn === state.turn) tell(error.message); }
  if (turn === state.turn && LIVE[view]) state.timer = setTimeout(look, LIVE[view]);
}

function open(view) {
  state.view = view;
  for (const name of VIEWS) $(`#${name}`).classList.toggle("shown", name === view);
  for (const button of document.querySelectorAll("nav button")) button.toggleAttribute("aria-current", false);
  $(`nav [data-view=${view}]`).setAttribute("aria-current", "page");
  $("#where").hidden = !["search", "tail"].includes(view);
  for (const label of document.querySelectorAll(".range")) label.hidden = view === "tail";
  location.hash = view;
  look();
}

// What one does ---------------------------------------------------------------------------------------------------------

async function removeFault(id) {
  try { await api(`faults/${id}`, {}, { method: "DELETE" }); } catch (error) { tell(error.message); }
  look();
}

async function installFault(event) {
  event.preventDefault();
  const given = Object.fromEntries([...new FormData(event.target)].filter(([, value]) => value !== ""));
  for (const name of ["times", "probability", "status", "seconds"]) if (name in given) given[name] = Number(given[name]);
  try { await api("faults", {}, { method: "POST", body: JSON.stringify(given) }); } catch (error) { return tell(error.message); }
  look();
}

function download(kind) {
  const rows = state.shown.map(log => log.fields), names = [...new Set(rows.flatMap(Object.keys))];
  const cell = text => `"${String(text ?? "").replaceAll('"', '""')}"`;
  const csv = () => [names, ...rows.map(row => names.map(name => row[name]))].map(row => row.map(cell).join(",")).join("\r\n");
  const link = make("a", { download: `logs.${kind}`, href: URL.createObjectURL(new Blob([kind === "csv" ? csv() : JSON.stringify(rows, null, 1)])) });
  link.click();
  URL.revokeObjectURL(link.href);
}

function dragRange() {
  const svg = $("#histogram");
  let start = null;
  const at = event => (event.clientX - svg.getBoundingClientRect().left) / svg.clientWidth * state.parts.length;
  const ends = event => [Math.max(0, Math.min(start, at(event))), Math.min(state.parts.length, Math.max(start, at(event)))];
  svg.addEventListener("pointerdown", event => { start = at(event); svg.setPointerCapture(event.pointerId); });
  svg.addEventListener("pointermove", event => {
    if (start === null) return;
    const [low, high] = ends(event);
    $(".chosen", svg).setAttribute("x", low);
    $(".chosen", svg).setAttribute("width", high - low);
  });
  svg.addEventListener("pointerup", event => {
    if (start === null || !state.parts.length) return;
    const [low, high] = ends(event);
    start = null;
    choose(state.parts[Math.floor(low)].from, state.parts[Math.max(Math.ceil(high) - 1, Math.floor(low))].to);
  });
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (VIEWS[event.key - 1]) open(VIEWS[event.key - 1]);
  else if (event.key === "/") { event.preventDefault(); if ($("#where").hidden) open("search"); $("#query").focus(); }
}

for (const button of document.querySelectorAll("nav button")) button.addEventListener("click", () => open(button.dataset.view));
$("#where").addEventListener("submit", event => { event.preventDefault(); submit(); });
$("#logstore").addEventListener("change", submit);
$("#span").addEventListener("change", submit);
$("#fault").addEventListener("submit", installFault);
$("#newer").addEventListener("click", () => { state.offset = Math.max(0, state.offset - PAGE); look(); });
$("#older").addEventListener("click", () => { if (state.shown.length === PAGE) state.offset += PAGE; look(); });
$("#json").addEventListener("click", () => download("json"));
$("#csv").addEventListener("click", () => download("csv"));
$("#pause").addEventListener("click", event => {
  state.paused = !state.paused;
  event.target.setAttribute("aria-pressed", state.paused);
});
document.addEventListener("keydown", keys);
dragRange();
open(VIEWS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "logstores");

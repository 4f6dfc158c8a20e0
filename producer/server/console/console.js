// The console: one view at a time over the JSON below /console/api. The state of the view is in the address, so that
// the browser's "back" works.

import { $, KeyWanted, Unreachable, api, bytes, count, exactTime, key, make, many, rate, table, time, value } from "./dom.js";
import { logItem, showNeighbours } from "./logs.js";
import { download, filtered, restart, show as showSearch, turn as turnPage, watchHistogram } from "./search.js";

const VIEWS = ["logstores", "search", "tail", "requests", "faults", "producers"];
const LIVE = { logstores: 2000, tail: 1000, requests: 2000, faults: 2000, producers: 2000 };  // milliseconds between two refreshes
const AGAIN = 2000;       // milliseconds until an unreachable server is tried again
const TAILED = 500;       // most logs in the tail
const MEANING = {
  answer: "The answer is an error; nothing is stored.",
  delay: "The answer comes after a delay of so many seconds.",
  drop_answer: "The data is stored, and the connection is reset without an answer.",
  cut: "The connection is reset while the client sends; nothing is stored.",
  half_answer: "The data is stored, and the answer breaks off.",
  raw_answer: "The answer is not HTTP; nothing is stored.",
  drip_answer: "The answer comes byte by byte, so many seconds apart.",
  clock_offset: "The server's clock is off by so many seconds.",
};
const state = { view: "logstores", after: null, paused: false, tailed: 0, timer: null, turn: 0, logstores: [], isAction: false };

// Selection -----------------------------------------------------------------------------------------------------

function place() {
  const [project, logstore] = $("#logstore").value.split("/");
  return { project, logstore };
}

function range() {
  const span = $("#span").value, now = Math.floor(Date.now() / 1000) + 1;
  if (span === "all") return everything();
  if (span !== "chosen") return { from: now - Number(span), to: now };
  const seconds = id => Math.floor(Date.parse(`${$(id).value}Z`) / 1000) || 0;
  return { from: seconds("#from"), to: seconds("#to") || now };
}

function everything() {
  const here = state.logstores.find(one => `${one.project}/${one.logstore}` === $("#logstore").value);
  return here && here.from !== null ? { from: here.from, to: here.to + 1 } : { from: 0, to: 4294967296 };
}

function choose(from, to) {
  for (const [id, seconds] of [["#from", from], ["#to", to]]) $(id).value = new Date(seconds * 1000).toISOString().slice(0, 19);
  $("#span").value = "chosen";
  submit();
}

function filter(name, text) {
  $("#query").value = filtered($("#query").value, name, text);
  submit();
}

// Writes the selection into the address, and reads it. "last hour" is stored as such, "from … to" as two times.
const ADDRESS = { logstore: "#logstore", query: "#query", span: "#span", from: "#from", to: "#to" };

function address() {
  if (!["search", "tail"].includes(state.view)) return `#${state.view}`;
  const chosen = Object.entries(ADDRESS).filter(([name, id]) => $(id).value && (!["from", "to"].includes(name) || $("#span").value === "chosen"));
  return `#${state.view}?${new URLSearchParams(chosen.map(([name, id]) => [name, $(id).value]))}`;
}

async function restore() {
  const [view, chosen] = location.hash.slice(1).split("?");
  state.view = VIEWS.includes(view) ? view : "logstores";
  const given = new URLSearchParams(chosen ?? "");
  const wanted = given.get("logstore");
  if (wanted && ![...$("#logstore").options].some(option => option.value === wanted)) $("#logstore").append(make("option", {}, wanted));
  for (const [name, id] of Object.entries(ADDRESS)) if (given.has(name)) $(id).value = given.get(name);
  if (!given.has("query") && chosen !== undefined) $("#query").value = "";
  open(state.view, false);
}

function submit() {
  state.after = null;
  state.tailed = 0;
  $("#tailed").replaceChildren();
  $("#tailing").textContent = "";
  restart();
  open(state.view);
}

// Views -------------------------------------------------------------------------------------------------------------------

const show = {
  async logstores() {
    await askLogstores();
    const sum = (shards, name) => shards.reduce((total, shard) => total + shard[name], 0);
    const figures = shards => [sum(shards, "logs"), bytes(sum(shards, "bytes")), rate(sum(shards, "logs_per_second")), `${bytes(sum(shards, "bytes_per_second"))}/s`];
    const ends = shards => [Math.min, Math.max].map((end, at) => {
      const found = shards.map(shard => at ? shard.last : shard.first).filter(when => when !== null);
      return found.length ? time(Math.floor(end(...found))) : "";
    });
    const go = (one, view, text) => make("button", { type: "button", "data-focus": `${view} ${one.project}/${one.logstore}`,
      "aria-label": `${text} ${one.project}/${one.logstore}`, onclick: () => { $("#logstore").value = `${one.project}/${one.logstore}`; $("#query").value = ""; state.view = view; submit(); } }, text);
    const kept = one => one.ttl === 3650 ? "kept for ever" : `kept ${many(one.ttl, "day")}`;
    table($("#logstores"), ["Project", "Logstore", "Shard", "#Logs", "#Size", "#Logs/s", "#Rate", "First received", "Last received", ""],
      state.logstores.flatMap(one => [
        { class: "sum", cells: [one.project, one.logstore, kept(one), ...figures(one.shards), ...ends(one.shards),
          make("span", { class: "buttons" }, go(one, "search", "Search"), go(one, "tail", "Tail"))] },
        ...one.shards.map(shard => ({ class: "part", cells: ["", "", `${shard.shard} ${shard.status}`, ...figures([shard]), ...ends([shard]), ""] }))]),
      ["No logstore yet: the first write makes one. ", make("code", {}, `producer send hello -p my-project -l my-logstore --endpoint ${location.origin} ${withKey()}`), " sends a line."]);
  },

  async search(isOver) {
    const all = $("#span").value !== "all" && (() => { $("#span").value = "all"; submit(); });
    await showSearch({ ...place(), ...range(), query: $("#query").value }, { isOver, filter, everything: all });
  },

  async tail(isOver) {
    if (state.paused) return;
    const isFirst = state.after === null;
    const found = await api("tail", { ...place(), query: $("#query").value, after: state.after });
    if (isOver()) return;
    state.after = found.after;
    state.tailed += found.logs.length;
    const here = place(), use = { around: log => showNeighbours(here, log).catch(failed), filter };
    $("#tailed").prepend(...found.logs.reverse().map(log => logItem(log, use)), ...(found.skipped ? [make("li", { class: "empty" }, "More logs arrived than are shown here.")] : []));
    while ($("#tailed").children.length > TAILED) $("#tailed").lastChild.remove();
    const summary = `${state.tailed ? `${many(state.tailed, "log")} ${state.tailed === 1 ? "has" : "have"} arrived` : "Waiting for logs that match"}${state.tailed > TAILED ? `, the last ${TAILED} shown` : ""}`;
    if ($("#tailing").textContent !== summary) $("#tailing").textContent = summary;
    if (isFirst) $("#tailed").replaceChildren();
  },

  async requests() {
    const found = await api("requests");
    table($("#requests"), ["Time", "Operation", "Logstore", "Status", "#Sent", "#Raw", "#Logs", "#Latency", "Client"], found.requests.map(one => ({ cells: [
      exactTime(one.time), one.operation, [one.project, one.logstore].filter(Boolean).join("/"),
      make("span", { class: one.status !== null && one.status < 400 ? "good" : "bad" }, `${one.status ?? "no answer"} ${one.error ?? ""}`),
      bytes(one.bytes), bytes(one.raw_bytes), one.logs, `${one.milliseconds.toFixed(1)} ms`, make("span", { class: "quiet" }, value(one.user_agent))] })),
    ["No requests yet. They are listed here as they come, the newest first."]);
  },

  async faults() {
    const found = await api("faults"), kinds = $("#fault select");
    if (!kinds.children.length) {
      kinds.append(...found.kinds.map(kind => make("option", {}, kind)));
      explainFault();
    }
    table($("#installed"), ["Fault", "For", "#Met", "Left", ""], found.faults.map(one => ({ cells: [
      one.what, Object.entries(one.for).map(pair => pair.join(" ")).join(", ") || "every request", one.fired,
      one.left === null ? "no end" : one.left || "used up",
      make("button", { type: "button", "data-focus": `fault ${one.id}`, "aria-label": `Remove ${one.what}`, onclick: () => act(`faults/${one.id}`, { method: "DELETE" }) }, "Remove")] })),
    ["No fault is installed: all requests are answered properly."]);
  },

  async producers() {
    const found = await api("producers");
    table($("#producers"), ["User agent", "Address", "#Requests", "#Refused", "#Logs", "#Size", "#Mean latency", "Endpoint", "Last seen"], found.producers.map(one => ({ cells: [
      value(one.user_agent), one.address, one.requests, make("span", { class: one.errors ? "bad" : null }, count(one.errors)), one.logs, bytes(one.bytes),
      `${one.milliseconds.toFixed(1)} ms`, value(one.endpoint || "the first"), time(Math.floor(one.seen))] })),
    ["No client has written yet."]);
  },
};

// The profile has the key that `producer serve` uses by default. A server whose console needs no key has the default
// key of tests.
const withKey = () => {
  if (key.isLocal()) return "--profile local";
  const [id, secret] = key.get() ? ["ID", "SECRET"] : ["test-access-key-id", "test-access-key-secret"];
  return `--access-key-id ${id} --access-key-secret ${secret}`;
};

async function askLogstores() {
  const found = await api("logstores");
  state.logstores = found.logstores;
  const names = found.logstores.map(one => `${one.project}/${one.logstore}`), select = $("#logstore"), chosen = select.value;
  // The logstore in the address stays selected even if it does not exist: the search then says so.
  if (chosen && !names.includes(chosen)) names.push(chosen);
  if (names.join() === [...select.options].map(option => option.value).join()) return;
  select.replaceChildren(...names.map(name => make("option", {}, name)));
  if (chosen) select.value = chosen;
}

// Refreshes of the view ---------------------------------------------------------------------------------------------

// A message about a user's action stays until the next action, one about a refresh until the next refresh.
function tell(text, style = "", isAction = false) {
  const message = $("#message");
  if (state.isAction && !isAction && !text) return;
  state.isAction = isAction && text !== "";
  if (message.textContent !== text) message.textContent = text;
  message.className = style;
}

function failed(error, isAction = false) {
  if (error instanceof KeyWanted) return askForKey();
  tell(error.message, "bad", isAction);
}

async function look() {
  clearTimeout(state.timer);
  const turn = ++state.turn, view = state.view, isOver = () => turn !== state.turn;
  let wait = LIVE[view];
  try {
    if (["search", "tail"].includes(view)) {
      if (!state.logstores.length || $("#span").value === "all" || view === "search") await askLogstores();
      if (isOver()) return;
      if (!$("#logstore").value) throw new Error("There is no logstore yet: the first write makes one.");
    }
    await show[view](isOver);
    if (!isOver()) tell("");
  } catch (error) {
    if (isOver()) return;
    failed(error);
    if (error instanceof KeyWanted) return;
    if (error instanceof Unreachable) wait = AGAIN;
  }
  if (!isOver() && wait) state.timer = setTimeout(look, wait);
}

function open(view, isNew = true) {
  state.view = view;
  for (const name of VIEWS) $(`#${name}`).classList.toggle("shown", name === view);
  for (const button of document.querySelectorAll("nav button")) button.dataset.view === view ? button.setAttribute("aria-current", "page") : button.removeAttribute("aria-current");
  // In a narrow window the row of views scrolls.
  $(`nav [data-view=${view}]`).scrollIntoView({ block: "nearest", inline: "nearest" });
  $("#login").hidden = true;
  $("#leave").hidden = !key.get();
  tell("", "", true);
  $("#where").hidden = !["search", "tail"].includes(view);
  for (const label of document.querySelectorAll(".range")) label.hidden = view === "tail" || label.classList.contains("ends") && $("#span").value !== "chosen";
  document.title = `${$(`nav [data-view=${view}]`).textContent} – LogHub console`;
  if (isNew && location.hash !== address()) history.pushState(null, "", address());
  look();
}

// User actions ---------------------------------------------------------------------------------------------------------------

function askForKey() {
  clearTimeout(state.timer);
  state.turn++;
  const isWrong = key.get() !== null;
  key.forget();
  for (const name of VIEWS) $(`#${name}`).classList.remove("shown");
  $("#where").hidden = $("#leave").hidden = true;
  $("#login").hidden = false;
  tell(isWrong ? "The server does not know this access key, or it is disabled." : "", isWrong ? "bad" : "");
  $("#key").focus();
}

async function act(path, options) {
  try {
    await api(path, {}, options);
    tell("", "", true);
    look();
  } catch (error) { failed(error, true); }
}

function installFault(event) {
  event.preventDefault();
  const given = Object.fromEntries([...new FormData(event.target)].filter(([, text]) => text !== ""));
  for (const name of ["times", "probability", "status", "seconds"]) if (name in given) given[name] = Number(given[name]);
  act("faults", { method: "POST", body: JSON.stringify(given) });
}

function explainFault() {
  const kind = $("#fault select").value;
  $("#meaning").textContent = MEANING[kind] ?? "";
  for (const label of document.querySelectorAll("#fault [data-for]")) {
    label.hidden = !label.dataset.for.split(" ").includes(kind);
    $("input", label).disabled = label.hidden;
  }
}

async function saveFile(kind) {
  try { tell(await download(kind), "good", true); } catch (error) { failed(error, true); }
}

function pause() {
  state.paused = !state.paused;
  $("#pause").setAttribute("aria-pressed", state.paused);
  if (state.paused) $("#tailing").textContent = "Paused";
  else look();
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || $("#neighbours").open || !$("#login").hidden) return;
  if (VIEWS[event.key - 1]) open(VIEWS[event.key - 1]);
  else if (event.key === "/") {
    event.preventDefault();
    if ($("#where").hidden) open("search");
    $("#query").focus();
  }
}

for (const button of document.querySelectorAll("nav button")) button.addEventListener("click", () => open(button.dataset.view));
$("#where").addEventListener("submit", event => { event.preventDefault(); submit(); });
$("#logstore").addEventListener("change", submit);
$("#span").addEventListener("change", () => {
  if ($("#span").value !== "chosen") return submit();
  const now = Math.floor(Date.now() / 1000);
  if (!$("#from").value) choose(now - 3600, now); else submit();
});
$("#fault").addEventListener("submit", installFault);
$("#fault select").addEventListener("change", explainFault);
$("#newer").addEventListener("click", () => { turnPage(-1); look(); });
$("#older").addEventListener("click", () => { turnPage(1); look(); });
$("#json").addEventListener("click", () => saveFile("json"));
$("#csv").addEventListener("click", () => saveFile("csv"));
$("#pause").addEventListener("click", pause);
$("#clear").addEventListener("click", () => { $("#tailed").replaceChildren(); });
$("#leave").addEventListener("click", () => { key.forget(); look(); });
$("#login").addEventListener("submit", event => {
  event.preventDefault();
  key.set($("#key").value, $("#secret").value);
  $("#secret").value = "";
  restore();
});
document.addEventListener("keydown", keys);
window.addEventListener("popstate", () => { restart(); restore(); });
watchHistogram(choose);
// The address that `producer serve` prints has the key, which moves from the address into this tab.
const given = new URLSearchParams(location.hash.slice(1));
if (given.has("key")) {
  key.set(given.get("key"), given.get("secret"));
  history.replaceState(null, "", location.pathname);
}
restore();

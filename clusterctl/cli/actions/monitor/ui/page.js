// Puts what the server sends into the page. Texts of nodes arrive as markup that the server has escaped, or as lines,
// which become text nodes here. Where a connection breaks the browser opens it again and names the last event it had.
"use strict";

const MOST_LINES = 3000; // in the page
const HIDDEN_FOR = 30000; // ms after which a page that is not looked at lets go of its connection
const RETRY = 5000; // ms
const FOLD = "fold/"; // parts that are not sent before they are open
const PATIENCE = 3; // tries to come back before the page says that no server answers
const main = document.getElementById("main");
const lines = document.getElementById("lines");
const state = {
  stream: null, run: null, id: "", last: "", number: 0, waiting: {}, timer: 0, follows: true, tries: 0, skew: 0,
  folds: new Map(), asked: new Set(),
};

function find(name) {
  return document.getElementById(name);
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function report(text, kind) {
  const status = find("connection");
  setText(status, text);
  status.className = kind;
}

// Spans of time: the server sends when something began, and the page counts, so that nothing is sent as time goes on.

const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

function renderSpan(seconds) {
  let rest = Math.max(0, Math.round(seconds));
  const found = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(rest / size);
    rest %= size;
    if (count) found.push([unit, count]);
    else if (found.length) break;
  }
  const [first, second] = found.length ? found : [["s", 0]];
  const form = main.getAttribute(`data-span-${first[0]}${second ? second[0] : ""}`);
  return form.replace("{n}", first[1]).replace(/\{rest[^}]*\}/, second ? String(second[1]).padStart(2, "0") : "");
}

function tick() {
  const now = Date.now() / 1000 + state.skew;
  for (const one of document.querySelectorAll("time[data-since]")) {
    setText(one, (one.dataset.text || "{span}").replace("{span}", renderSpan(now - one.dataset.since)));
  }
  for (const one of document.querySelectorAll("time[data-ago]")) {
    setText(one, main.dataset.ago.replace("{age}", renderSpan(now - one.dataset.ago)));
  }
}

setInterval(tick, 1000);

// Parts: replaced as a whole, but details stay open, the focus stays, and a selection is not taken away.

function key(element) {
  return element.dataset.key || element.getAttribute("href") || element.id || element.textContent;
}

function isSelected(part) {
  const selection = document.getSelection();
  return !selection.isCollapsed && part.contains(selection.anchorNode);
}

function keepFocus(part, change) {
  const focused = part && part.contains(document.activeElement) ? key(document.activeElement) : null;
  const changed = change();
  if (focused === null || !changed) return;
  const same = [...changed.querySelectorAll("a,button,summary,[tabindex]")].find((one) => key(one) === focused);
  if (same) same.focus({ preventScroll: true });
}

function show(name, html) {
  if (name.startsWith(FOLD)) {
    state.folds.set(name, html);
    if (!find(name)) return; // its place comes with a later part
  } else if (name.includes("/")) {
    const end = name.indexOf("/");
    showRow(name.slice(0, end), name.slice(end + 1), html);
    tick();
    return;
  }
  const part = find(name);
  if (isSelected(part)) {
    state.waiting[name] = html;
    return;
  }
  delete state.waiting[name];
  const open = new Map([...part.querySelectorAll("details")].map((one) => [key(one.firstChild), one.open]));
  keepFocus(part, () => {
    part.innerHTML = html; // escaped by the server
    for (const one of part.querySelectorAll(".fold")) one.innerHTML = state.folds.get(one.id) || "";
    return part;
  });
  for (const one of part.querySelectorAll("details")) {
    if (open.has(key(one.firstChild))) one.open = open.get(key(one.firstChild));
  }
  if (name === "numbers" || name === "node-plots") askForFolds();
  if (name === "summary") onSummary(part.firstElementChild);
  if (name === "culprit") seekCulprit();
  tick();
}

// What is folded is sent from when it is open for the first time.

function askForFolds() {
  for (const one of document.querySelectorAll("details[data-fold][open]")) openFold(one.dataset.fold);
  if (document.querySelector("#plots .choose-time").checked) openFold("time");
}

function openFold(name) {
  if (!state.id || state.asked.has(name)) return;
  state.asked.add(name);
  post("open", { run: state.id, name }).catch(() => state.asked.delete(name));
}

document.addEventListener("toggle", askForFolds, true);
document.querySelector("#plots .choose-time").addEventListener("input", askForFolds);

// Rows of a table, each a part: in the order of `data-order`, the highest first; an empty one is gone. The part without
// an id comes after all rows: what a page still has from before it has connected again is gone, too.

const TABLES = ["runs", "machines"];

function showRow(table, id, html) {
  const body = find(table);
  if (!id) {
    for (const { dataset } of [...body.querySelectorAll("[data-before]")]) {
      if (!(`${table}/${dataset.id}` in state.waiting)) showRow(table, dataset.id, "");
    }
    return;
  }
  const old = [...body.rows].find((row) => row.dataset.id === id);
  if (old && isSelected(old)) {
    state.waiting[`${table}/${id}`] = html;
    return;
  }
  delete state.waiting[`${table}/${id}`];
  const template = document.createElement("template");
  template.innerHTML = html; // escaped by the server
  const row = template.content.firstElementChild;
  keepFocus(old, () => {
    if (old && row) old.replaceWith(row);
    else if (old) old.remove();
    else if (row) body.insertBefore(row, findPlace(body, row));
    return row;
  });
  if (row) row.dataset.id = id;
  find(`${table}-table`).hidden = !body.rows.length;
  if (table === "runs") filterRuns();
}

function findPlace(body, row) {
  if (!row.dataset.order) return null;
  let place = null;
  for (let other = body.lastElementChild; other; other = other.previousElementSibling) {
    if (Number(other.dataset.order) >= Number(row.dataset.order)) break;
    place = other;
  }
  return place;
}

// The filters of the list stay in the address, so that a page that is loaded again has them.

const CHOICES = ["state", "job", "by"];
const LIVE = ["RUNNING", "STALLED", "SUBMITTED", "PREPARING", "WAITING"];

function filterRuns() {
  const [wanted, job, by] = CHOICES.map((name) => find(`list-${name}`).value.trim().toLowerCase());
  let shown = 0;
  const rows = find("runs").rows;
  for (const row of rows) {
    const [name, chip] = [row.querySelector("a").textContent, row.querySelector(".chip").textContent];
    const passes = !wanted || (wanted === "live" ? LIVE.includes(chip) : chip.toLowerCase().startsWith(wanted));
    row.hidden = !(
      passes && name.toLowerCase().includes(job) && row.cells[6].textContent.toLowerCase().includes(by)
    );
    shown += row.hidden ? 0 : 1;
  }
  find("runs-filters").hidden = !rows.length;
  setText(find("runs-count"), main.dataset.runs.replace("{shown}", shown).replace("{all}", rows.length));
}

for (const name of CHOICES) {
  const field = find(`list-${name}`);
  field.value = new URLSearchParams(location.search).get(name) || "";
  field.addEventListener("input", () => {
    const chosen = CHOICES.map((one) => [one, find(`list-${one}`).value.trim()]).filter(([, value]) => value);
    history.replaceState(null, "", `?${new URLSearchParams(chosen)}${location.hash}`);
    filterRuns();
  });
}

// The page of a run: buttons only for one that lives, and no log of one that is gone.

function onSummary(summary) {
  const live = Boolean(summary && summary.dataset.live === "yes");
  const missing = Boolean(summary && summary.dataset.missing === "yes");
  for (const name of ["stop", "diagnose"]) {
    find(name).hidden = !live;
    find(name).disabled = false;
  }
  for (const name of ["log", "nodes", "plots", "notices"]) find(name).hidden = missing;
  if (!live && find("ask").open) find("ask").close();
  const question = summary && summary.querySelector(".question");
  find("question").replaceChildren(...(question ? question.cloneNode(true).childNodes : []));
  if (summary && summary.dataset.title) document.title = summary.dataset.title;
}

document.addEventListener("selectionchange", () => {
  if (document.getSelection().isCollapsed) {
    for (const [name, html] of Object.entries(state.waiting)) show(name, html);
  }
});

// Lines of the log.

function parseRanks(text) {
  const ranges = [...text.matchAll(/(\d+)(?:\s*-\s*(\d+))?/g)].map((m) => [Number(m[1]), Number(m[2] || m[1])]);
  return ranges.length ? (rank) => ranges.some(([low, high]) => rank >= low && rank <= high) : () => true;
}

function makeFilter() {
  const [ranks, node] = ["rank", "node"].map((name) => find(`filter-${name}`).value.trim());
  const hasRank = parseRanks(ranks);
  const errorsOnly = find("log-stderr").checked;
  const wanted = find("log-matches").checked ? find("search").value.toLowerCase() : "";
  return (line) =>
    (!ranks || (line.dataset.rank !== "" && hasRank(Number(line.dataset.rank)))) &&
    line.dataset.node.includes(node) &&
    (!errorsOnly || line.classList.contains("error")) &&
    (!wanted || holds(line, wanted));
}

function holds(line, text) {
  return line.lastChild.textContent.toLowerCase().includes(text);
}

function span(name, text) {
  const element = document.createElement("span");
  element.className = name;
  element.textContent = text;
  return element;
}

function makeLine([, node, rank, label, text, time]) {
  const line = document.createElement("div");
  line.dataset.node = node;
  line.dataset.rank = rank === null ? "" : rank;
  if (label) line.className = "error";
  const moment = time ? new Date(time * 1000).toTimeString().slice(0, 8) : "";
  line.append(span("when", moment), span("who", `${node} ${rank === null ? "-" : `r${rank}`}`), span("what", text));
  return line;
}

function addLines(rows) {
  const passes = makeFilter();
  const fresh = document.createDocumentFragment();
  for (const row of rows) {
    if (row[0] > state.number + 1 && state.number > 0) {
      const gap = document.createElement("div");
      gap.className = "gap";
      gap.dataset.node = gap.dataset.rank = "";
      gap.append(span("what", main.dataset.gap));
      fresh.append(gap);
    }
    state.number = row[0];
    const line = makeLine(row);
    line.hidden = !passes(line);
    fresh.append(line);
  }
  lines.append(fresh);
  while (lines.childElementCount > MOST_LINES) lines.firstChild.remove();
  seekCulprit();
  if (state.follows) lines.scrollTop = lines.scrollHeight;
  count();
}

function setFollow(follows) {
  state.follows = follows;
  setText(find("follow"), follows ? main.dataset.pause : main.dataset.follow);
  if (follows) lines.scrollTop = lines.scrollHeight;
}

lines.addEventListener("scroll", () => {
  const isAtEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 30;
  if (state.follows !== isAtEnd) setFollow(isAtEnd);
});

find("follow").addEventListener("click", () => {
  state.sought = true;
  setFollow(!state.follows);
});

function count() {
  const all = lines.childElementCount;
  const shown = all - lines.querySelectorAll(":scope > [hidden]").length;
  setText(find("count"), main.dataset.count.replace("{shown}", shown).replace("{all}", all));
  countHits();
}

function filterLines() {
  const passes = makeFilter();
  for (const line of lines.children) line.hidden = !passes(line);
  if (state.follows) lines.scrollTop = lines.scrollHeight;
  count();
}

for (const name of ["filter-rank", "filter-node", "log-stderr", "log-matches"]) {
  find(name).addEventListener("input", filterLines);
}
for (const [name, kind] of [["log-times", "times"], ["log-wrap", "wrap"]]) {
  find(name).addEventListener("input", () => lines.classList.toggle(kind, find(name).checked));
  lines.classList.toggle(kind, find(name).checked);
}

find("options").addEventListener("click", () => {
  find("options").setAttribute("aria-expanded", find("log").classList.toggle("open")); // where there is little room
});

// The first line of the failure, of the rank that is the cause: the traceback that ends with its message, as it may
// have survived exceptions before; else its last traceback.

function seekCulprit() {
  const culprit = find("culprit").firstElementChild;
  if (!culprit || state.sought) return;
  const own = [...lines.children].filter(
    (line) => line.dataset.node === culprit.dataset.node && line.dataset.rank === culprit.dataset.rank,
  );
  const errors = own.filter((line) => line.classList.contains("error"));
  const text = culprit.dataset.text.toLowerCase();
  const end = text ? own.findLastIndex((line) => holds(line, text)) : -1;
  const before = new Set(end < 0 ? own : own.slice(0, end + 1));
  const first =
    errors.findLast((line) => before.has(line) && holds(line, "traceback (most recent call last)")) ||
    own[end] || errors[0];
  if (!first) return;
  for (const line of lines.querySelectorAll(".culprit")) line.classList.remove("culprit");
  first.classList.add("culprit");
  setFollow(false);
  goTo(first);
}

function goTo(line) {
  lines.scrollTop += line.getBoundingClientRect().top - lines.getBoundingClientRect().top - lines.clientHeight / 5;
}

for (const kind of ["wheel", "pointerdown", "keydown"]) {
  lines.addEventListener(kind, () => {
    state.sought = true; // from now on a person decides what is seen
  }, { passive: true });
}

// Search: matches are marked, and the keys and buttons go from one to the next.

function listHits() {
  const text = find("search").value.toLowerCase();
  return text ? [...lines.children].filter((line) => !line.hidden && holds(line, text)) : [];
}

function countHits() {
  const hits = listHits();
  const kept = new Set(hits);
  for (const line of lines.querySelectorAll(".hit")) if (!kept.has(line)) line.classList.remove("hit", "current");
  for (const line of hits) line.classList.add("hit");
  const place = hits.findIndex((line) => line.classList.contains("current")) + 1;
  const text = main.dataset.hits.replace("{n}", place).replace("{all}", hits.length);
  setText(find("hits"), find("search").value ? text : "");
}

function goToHit(step) {
  const hits = listHits();
  if (!hits.length) return;
  const place = hits.findIndex((line) => line.classList.contains("current"));
  const next = hits[place < 0 ? (step > 0 ? 0 : hits.length - 1) : (place + step + hits.length) % hits.length];
  for (const line of lines.querySelectorAll(".current")) line.classList.remove("current");
  next.classList.add("current");
  state.sought = true;
  setFollow(false);
  goTo(next);
  countHits();
}

find("search").addEventListener("input", () => {
  for (const line of lines.querySelectorAll(".current")) line.classList.remove("current");
  filterLines();
});
find("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter") goToHit(event.shiftKey ? -1 : 1);
});
find("next").addEventListener("click", () => goToHit(1));
find("previous").addEventListener("click", () => goToHit(-1));

// The stream of events.

function connect() {
  disconnect();
  const query = new URLSearchParams({ run: state.run, last: state.last });
  const address = `events?${query}`;
  const stream = new EventSource(address);
  state.stream = stream;
  stream.addEventListener("begin", (event) => {
    const begin = JSON.parse(event.data);
    state.tries = 0;
    state.id = begin.run;
    state.skew = begin.now - Date.now() / 1000;
    find("download").href = `log?${new URLSearchParams({ run: state.id })}`;
    report(main.dataset.connected, "good");
    refuse("");
    state.asked.clear();
    for (const row of TABLES.flatMap((table) => [...find(table).rows])) row.dataset.before = "yes";
    if (!begin.resumed) {
      lines.replaceChildren();
      state.number = 0;
      count();
    }
  });
  stream.addEventListener("part", (event) => {
    const part = JSON.parse(event.data);
    show(part.name, part.html);
  });
  stream.addEventListener("lines", (event) => {
    state.last = event.lastEventId;
    addLines(JSON.parse(event.data));
  });
  stream.onerror = () => {
    state.tries += 1;
    report(state.tries < PATIENCE ? main.dataset.lost : main.dataset.gone, "bad");
    if (stream.readyState === EventSource.CLOSED) onRefusal(stream, address);
  };
}

// A stream of events does not show why it was refused: the same is asked for once more, for the text.

async function onRefusal(stream, address) {
  const given = new AbortController();
  let [text, again] = ["", true];
  try {
    const answer = await fetch(address, { signal: given.signal });
    if (!answer.ok) [text, again] = [(await answer.text()).trim(), answer.status === 503];
    given.abort();
  } catch {
    text = main.dataset.gone;
  }
  if (state.stream !== stream) return;
  report(again ? text : "", "bad"); // what is final stands in the page
  if (again) state.timer = setTimeout(connect, RETRY);
  else refuse(text);
}

function refuse(text) {
  setText(find("refusal"), text);
  find("refused").hidden = !text;
  find("run").hidden = Boolean(text) || !state.run;
  find("list").hidden = Boolean(text) || Boolean(state.run);
}

function disconnect() {
  clearTimeout(state.timer);
  if (state.stream) state.stream.close();
  state.stream = null;
}

const PARTS = [
  "head", "summary", "culprit", "nodes", "numbers", `${FOLD}time`, "node-plots", "timeline", "about", "notices",
  "answer", "problem",
]; // of a run

function navigate() {
  const hash = decodeURIComponent(location.hash.slice(1));
  const run = hash === "main" ? state.run || "" : hash; // the link for keyboards leads there
  if (run === state.run) return;
  document.getSelection().removeAllRanges(); // else the other run's summary would stay beside the buttons
  Object.assign(state, { run, id: "", last: "", number: 0, waiting: {}, tries: 0, sought: false, folds: new Map() });
  setFollow(true);
  for (const name of PARTS) show(name, "");
  lines.replaceChildren();
  refuse("");
  document.title = "clusterctl";
  connect();
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(state.timer);
  if (document.hidden) state.timer = setTimeout(disconnect, HIDDEN_FOR);
  else if (!state.stream || state.stream.readyState === EventSource.CLOSED) connect();
});

// Buttons.

function post(name, body) {
  const headers = { "Content-Type": "application/json" };
  return fetch(name, { method: "POST", headers, body: JSON.stringify(body) });
}

async function act(name) {
  show("answer", "");
  find("answer").textContent = main.dataset.working;
  find(name).disabled = true;
  const run = state.id;
  try {
    const answer = await post(name, { run });
    if (run !== state.id) return;
    if (answer.ok) show("answer", (await answer.json()).html);
    else find("answer").textContent = await answer.text();
  } catch (error) {
    if (run === state.id) find("answer").textContent = String(error);
  }
  onSummary(find("summary").firstElementChild);
}

find("diagnose").addEventListener("click", () => act("diagnose"));
find("stop").addEventListener("click", () => find("ask").showModal());
find("keep").addEventListener("click", () => find("ask").close());
find("confirm").addEventListener("click", () => {
  find("ask").close();
  act("stop");
});

// Commands are copied; where the browser does not allow that, the text is selected.

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    setText(find("said"), main.dataset.copied);
  } catch {
    const code = button.parentElement.querySelector("code") || button;
    document.getSelection().selectAllChildren(code);
    setText(find("said"), main.dataset.selected);
  }
  setTimeout(() => setText(find("said"), ""), 2000);
});

window.addEventListener("hashchange", navigate);
navigate();

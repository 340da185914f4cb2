// Asks for all numbers every two seconds and writes what has changed into the page. Rows stay where they are as long as
// what they are about does, so that nobody loses the place where they read. Needs nothing from elsewhere.
"use strict";

const EVERY_MS = 2000;
const PATIENCE_MS = 5000;
const byId = (id) => document.getElementById(id);
let paused = false;
let timer = 0;
let asked = 0;
let answeredAt = null;

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function mark(element, name, value) {
  if (element.dataset[name] !== value) element.dataset[name] = value;
}

function number(value, digits = 0) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: digits });
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.001) return `${number(value * 1e6)} µs`;
  if (value < 1) return `${number(value * 1000, 2)} ms`;
  if (value < 120) return `${number(value, 1)} s`;
  if (value < 7200) return `${number(Math.floor(value / 60))} min`;
  if (value < 172800) return `${number(Math.floor(value / 3600))} h`;
  return `${number(Math.floor(value / 86400))} days`;
}

// A p99 is the upper bound of its bucket.
const quantile = (times) => (times.p99_seconds === null ? (times.count ? "> 30 s" : "–") : `≤ ${seconds(times.p99_seconds)}`);

function clock(at) {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}

// rows: [{key, cells: [text], numeric: [index], data: {name: value}}]
function fill(id, rows, nothing) {
  const body = byId(id);
  const columns = body.parentElement.tHead.rows[0].cells;
  const old = new Map(Array.from(body.rows, (row) => [row.dataset.key, row]));
  const wanted = rows.length ? rows : [{ key: "", cells: [nothing], empty: true }];
  wanted.forEach((one, place) => {
    let row = old.get(one.key);
    if (!row) {
      row = document.createElement("tr");
      row.dataset.key = one.key;
      one.cells.forEach((_, index) => {
        const cell = document.createElement("td");
        if (one.empty) {
          cell.colSpan = columns.length;
          cell.className = "empty";
        } else if (columns[index].className) cell.className = columns[index].className;
        row.append(cell);
      });
    }
    one.cells.forEach((text, index) => write(row.cells[index], text));
    Object.entries(one.data || {}).forEach(([name, value]) => mark(row, name, value));
    if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] || null);
  });
  while (body.rows.length > wanted.length) body.rows[wanted.length].remove();
}

function curve(rates) {
  const highest = Math.max(1, ...rates);
  const from = 120 - rates.length;
  const points = rates.map((rate, index) => `${from + index},${(29 - (rate / highest) * 28).toFixed(2)}`);
  byId("curve_path").setAttribute("d", points.length > 1 ? `M${points.join("L")}` : "");
  const now = rates.length ? rates[rates.length - 1] : 0;
  write(byId("curve_text"), `Batches per second, the last two minutes: ${number(now)} now, at most ${number(Math.max(0, ...rates))}`);
}

function showStatus(status) {
  const state = byId("state");
  mark(state, "state", status.ready ? "ready" : "not_ready");
  write(state, status.ready ? "Ready: clients are served" : status.draining ? "Draining: about to end" : "Not ready");
  document.title = `${status.ready ? "Ready" : "Not ready"} – idemproxy`;
  const reasons = byId("reasons");
  const texts = [...status.not_ready, ...status.concerns];
  if (reasons.dataset.texts !== texts.join("\n")) {
    reasons.dataset.texts = texts.join("\n");
    reasons.replaceChildren(...texts.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
  }
  reasons.hidden = !texts.length;
  reasons.classList.toggle("warn", status.ready);
  write(byId("version"), status.version);
  write(byId("cluster"), status.cluster);
  write(byId("uptime"), seconds(status.uptime_seconds));
  const { totals, doubts, clients, redis, times } = status;
  const isNative = status.idempotence === "native";
  const values = {
    duplicates_prevented: number(totals.duplicates_prevented),
    batches_per_second: number(status.per_second.batches, 1),
    in_doubt: doubts.now ? `${number(doubts.now)}, oldest ${seconds(doubts.oldest_seconds)}` : "0",
    duplicates_found: number(totals.duplicates_found),
    out_of_order_refused: number(totals.out_of_order_refused),
    connections: number(clients.connections),
    lease: isNative ? "none needed: native brokers" : redis.connected ? seconds(redis.lease_remaining_seconds) : "no Redis",
    client_to_broker: quantile(times.client_to_broker),
    broker_time: quantile(times.broker),
    broker_to_client: quantile(times.broker_to_client),
  };
  Object.entries(values).forEach(([id, text]) => write(byId(id), text));
  byId("duplicates_found").classList.toggle("bad", totals.duplicates_found > 0);
  byId("lease").classList.toggle("bad", !isNative && (!redis.connected || redis.lease_remaining_seconds <= 0));
}

function work(one) {
  if (one.open_intent && one.idle) return "left open";
  if (one.under_way || one.queued) return `${one.under_way} under way, ${one.queued} waiting`;
  return one.idle ? "idle" : "writes its state";
}

function showProducers(found) {
  const place = (one) => `${one.topic}-${one.partition}`;
  write(byId("producers_count"), `${number(found.producers.length)} shown of ${number(found.in_memory)} in memory`);
  fill("producers", found.producers.map((one) => ({
    key: `${one.producer_id}/${place(one)}`,
    cells: [
      place(one), one.producer_id, one.known ? String(one.epoch) : "–", one.known ? String(one.next_sequence) : "–",
      (one.window || []).map((batch) => `${batch.base_sequence} @ ${batch.base_offset}`).join(", ") || "–", work(one),
    ],
  })), "No producer has sent anything yet.");
}

function show(page) {
  showStatus(page.status);
  curve(page.history.batches);
  fill("brokers", page.brokers.map((one) => ({
    key: String(one.id),
    cells: [String(one.id), one.address, one.version || "not known yet", one.ready ? "connected" : "away",
      number(one.lanes_busy), number(one.lanes_idle),
      `${number(one.own_lanes_busy)} of ${number(one.own_lanes_busy + one.own_lanes_idle)}`, number(one.appends_waiting)],
    data: { state: one.ready ? "connected" : "away" },
  })), "No broker is known yet.");
  fill("doubts", page.doubts.map((one) => ({
    key: `${one.producer_id}/${one.topic}-${one.partition}/${one.base_sequence}`,
    cells: [`${one.topic}-${one.partition}`, one.producer_id, String(one.base_sequence), seconds(one.age_seconds), one.reason],
  })), "Nothing is in doubt.");
  fill("duplicates", page.duplicates.map((one) => ({
    key: JSON.stringify([one.client_id, one.topic]),
    cells: [one.client_id, one.topic, number(one.count)],
  })), "None so far.");
  showProducers(page.producers);
  const seen = new Map();
  fill("events", page.events.map((one) => {
    const name = `${one.at} ${one.text}`;
    seen.set(name, (seen.get(name) || 0) + 1);
    return { key: `${name} ${seen.get(name)}`, cells: [clock(one.at), one.level, one.text], data: { level: one.level } };
  }), "Nothing has been written to the log yet.");
}

async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

async function update() {
  const mine = ++asked;
  try {
    const filter = new URLSearchParams([...new FormData(byId("filter"))].filter(([, value]) => value.trim()));
    const page = await ask("api/v1/page");
    if (filter.size) page.producers = await ask(`api/v1/producers?limit=50&${filter}`).catch(() => ({ producers: [], in_memory: 0 }));
    if (mine !== asked) return;
    answeredAt = new Date();
    document.body.classList.remove("stale");
    show(page);
    write(byId("updated"), `updated ${answeredAt.toLocaleTimeString("en-GB")}`);
  } catch (error) {
    if (mine !== asked) return;
    document.body.classList.add("stale");
    mark(byId("state"), "state", "lost");
    write(byId("state"), answeredAt ? `No answer from the proxy since ${answeredAt.toLocaleTimeString("en-GB")}` : "No answer from the proxy");
    document.title = "No answer – idemproxy";
  }
  plan();
}

function plan() {
  clearTimeout(timer);
  if (!paused && !document.hidden) timer = setTimeout(update, EVERY_MS);
}

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  if (!paused) return update();
  clearTimeout(timer);
  asked += 1; // an answer that is on its way would change what is being read
});
byId("filter").addEventListener("submit", (event) => event.preventDefault());
byId("filter").addEventListener("input", () => update());
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : paused || update()));
update();

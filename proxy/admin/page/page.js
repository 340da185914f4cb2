// Asks for all numbers every two seconds and writes what has changed into the page. Rows stay where they are as long as
// what they are about does, so that nobody loses the place where they read. Needs nothing from elsewhere.
"use strict";

const EVERY_MS = 2000;
const PATIENCE_MS = 5000;
const ROWS_ON_A_PHONE = 5;
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

// What the proxy has answered last: sorting and the filter of clients show it anew, also while the page is paused.
let latest = null;

// Which column a table is sorted by, and whether downwards; without an entry the proxy's own order holds.
const sortedBy = new Map();

// rows: [{key, cells: [text], order: [what a column is sorted by], data: {name: value}}]
function fill(id, rows, nothing) {
  const body = byId(id);
  const columns = body.parentElement.tHead.rows[0].cells;
  const old = new Map(Array.from(body.rows, (row) => [row.dataset.key, row]));
  const by = sortedBy.get(id);
  if (by) rows.sort((one, other) => (by.downwards ? -1 : 1) * compare(one.order[by.column], other.order[by.column]));
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
        } else {
          cell.dataset.title = columns[index].textContent;
          if (columns[index].className) cell.className = columns[index].className;
        }
        row.append(cell);
      });
    }
    one.cells.forEach((text, index) => write(row.cells[index], text));
    Object.entries(one.data || {}).forEach(([name, value]) => mark(row, name, value));
    if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] || null);
  });
  while (body.rows.length > wanted.length) body.rows[wanted.length].remove();
  more(body, wanted.length);
}

// Numbers by size, texts by their letters.
const compare = (one, other) => (typeof one === "number" ? one - other : String(one).localeCompare(String(other)));

// On a narrow screen a list shows its first rows until more are wanted (page.css).
function more(body, count) {
  const wide = body.closest(".wide");
  let button = wide.querySelector(".more");
  if (!button) {
    button = Object.assign(document.createElement("button"), { type: "button", className: "more" });
    button.addEventListener("click", () => {
      wide.classList.toggle("all");
      more(body, body.rows.length);
    });
    wide.append(button);
  }
  button.hidden = count <= ROWS_ON_A_PHONE;
  write(button, wide.classList.contains("all") ? "Show fewer" : `Show all ${count}`);
}

document.querySelectorAll(".sortable").forEach((table) => {
  const id = table.tBodies[0].id;
  Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: head.textContent });
    button.addEventListener("click", () => {
      const by = sortedBy.get(id);
      const downwards = by && by.column === column ? !by.downwards : head.classList.contains("n");
      sortedBy.set(id, { column, downwards });
      Array.from(table.tHead.rows[0].cells).forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", downwards ? "descending" : "ascending");
      if (latest) show(latest);
    });
    head.replaceChildren(button);
  });
});

// The last hour: what is drawn, and how a value is said.
const CHARTS = [
  { name: "batches", title: "Batches per second", shown: (value) => number(value, 1) },
  { name: "duplicates_prevented", title: "Duplicates prevented, in 30 s", shown: (value) => number(value) },
  { name: "unknown_outcomes_opened", title: "Unknown outcomes, in 30 s", shown: (value) => number(value) },
  { name: "batch_p99_seconds", title: "A batch, p99", shown: (value) => seconds(value) },
  { name: "requests", title: "Requests per second", shown: (value) => number(value, 1), isNative: true },
];
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300, HEIGHT = 90, LEFT = 52, TOP = 8, BOTTOM = 72;

function svg(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  if (text !== undefined) element.textContent = text;
  return element;
}

// One chart: a line per value, a gap where there is none, an axis with the highest value, and the time below.
function chart(one, history) {
  let figure = byId(`chart_${one.name}`);
  if (!figure) {
    figure = document.createElement("figure");
    figure.id = `chart_${one.name}`;
    figure.className = one.isNative ? "native" : "proxied";
    const drawn = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-labelledby": `text_${one.name}` });
    drawn.append(
      svg("path", { class: "axis", d: `M${LEFT} ${TOP}V${BOTTOM}H${WIDTH - 4}` }),
      svg("text", { class: "highest", x: LEFT - 5, y: TOP + 6, "text-anchor": "end" }),
      svg("text", { x: LEFT - 5, y: BOTTOM, "text-anchor": "end" }, "0"),
      svg("text", { class: "begin", x: LEFT, y: HEIGHT - 4 }),
      svg("text", { x: WIDTH - 4, y: HEIGHT - 4, "text-anchor": "end" }, "now"),
      svg("path", { class: "line" }),
    );
    figure.append(drawn, Object.assign(document.createElement("figcaption"), { id: `text_${one.name}` }));
    byId("charts").append(figure);
  }
  const values = history[one.name] || [];
  const ago = history.seconds_ago || [];
  const there = values.filter((value) => value !== null);
  const highest = Math.max(0, ...there);
  const longest = Math.max(60, ...ago);
  let line = "";
  let isDrawn = false;
  values.forEach((value, index) => {
    if (value !== null) {
      const x = WIDTH - 4 - (ago[index] / longest) * (WIDTH - 4 - LEFT);
      const y = BOTTOM - (value / (highest || 1)) * (BOTTOM - TOP);
      line += `${isDrawn ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}${isDrawn ? "" : "h0.1"}`;
    }
    isDrawn = value !== null;
  });
  figure.querySelector(".line").setAttribute("d", line);
  write(figure.querySelector(".highest"), highest ? one.shown(highest) : "");
  write(figure.querySelector(".begin"), longest >= 3540 ? "1 h ago" : `${Math.round(longest / 60)} min ago`);
  const latest = there.length ? one.shown(values[values.length - 1]) : "nothing yet";
  write(figure.querySelector("figcaption"), `${one.title}: ${latest} now${highest ? `, at most ${one.shown(highest)}` : ""}`);
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
  write(byId("host"), status.host || "–");
  const engineTopics = status.engine_topics.length ? `, on ${status.engine_topics.join(", ")} the proxy` : "";
  const native = `the brokers (native)${engineTopics}`;
  write(byId("mode"), { native, proxy: "the proxy" }[status.idempotence] || "not known yet");
  write(byId("uptime"), seconds(status.uptime_seconds));
  const { totals, unknown_outcomes, redis, times } = status;
  const isNative = passesAll(status);
  const values = {
    duplicates_prevented: number(totals.duplicates_prevented),
    batches_per_second: number(status.batches_per_second, 1),
    in_doubt: unknown_outcomes.now ? `${number(unknown_outcomes.now)}, oldest ${seconds(unknown_outcomes.oldest_seconds)}` : "0",
    duplicates_found: number(totals.duplicates_found),
    out_of_order_refused: number(totals.out_of_order_refused),
    connections: number(status.connections),
    requests_per_second: number(status.requests_per_second, 1),
    received: bytes(status.client_bytes.received),
    sent: bytes(status.client_bytes.sent),
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
      place(one), one.producer_id, one.client_id || "–", one.known ? String(one.epoch) : "–", one.known ? String(one.next_sequence) : "–",
      (one.window || []).map((batch) => `${batch.base_sequence} @ ${batch.base_offset}`).join(", ") || "–", work(one),
    ],
    order: [
      `${one.topic} ${String(one.partition).padStart(10, "0")}`, one.producer_id.padStart(20, "0"), one.client_id || "",
      one.known ? one.epoch : -1, one.known ? one.next_sequence : -1, one.window ? one.window.length : -1, work(one),
    ],
  })), "No producer has sent anything yet.");
}

function bytes(value) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  const power = value < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(value) / 3));
  return `${number(value / 1000 ** power, power ? 1 : 0)} ${units[power]}`;
}

function showClients(found) {
  const wanted = byId("clients_filter").elements.text.value.trim().toLowerCase();
  const fits = (one) => `${one.client_id}\n${one.topic}`.toLowerCase().includes(wanted);
  const others = (one) => Object.entries(one.verdicts).filter(([verdict, count]) => count && verdict !== "appended");
  fill("clients", found.filter(fits).map((one) => ({
    key: JSON.stringify([one.client_id, one.topic]),
    cells: [
      one.client_id, one.topic, number(one.batches), number(one.records), bytes(one.bytes), number(one.duplicates_prevented),
      others(one).map(([verdict, count]) => `${verdict} ${number(count)}`).join(", ") || "–", `${seconds(one.idle_seconds)} ago`,
    ],
    order: [
      one.client_id, one.topic, one.batches, one.records, one.bytes, one.duplicates_prevented,
      others(one).reduce((sum, [, count]) => sum + count, 0), one.idle_seconds,
    ],
    data: { failing: String(one.failing) },
  })), wanted ? "No client or topic has that in its name." : "No batch with a producer id has come yet.");
}

const SIGNS = { problem: "error", warning: "warning" };

function showFindings(found) {
  byId("findings_section").hidden = !found.length;
  fill("findings", found.map((one) => ({
    key: JSON.stringify([one.what, one.text]),
    cells: [one.sign, one.what, one.text],
    data: { level: SIGNS[one.sign] || "info" },
  })), "Nothing is wrong.");
}

function showLines(id, found) {
  const seen = new Map();
  fill(id, found.map((one) => {
    const name = `${one.at} ${one.text}`;
    seen.set(name, (seen.get(name) || 0) + 1);
    return { key: `${name} ${seen.get(name)}`, cells: [clock(one.at), one.level, one.text], data: { level: one.level } };
  }), "Nothing has been written to the log yet.");
}

// What only the proxy gives is not shown where the brokers give it, and the reverse.
// Do the brokers give idempotence on all topics?
function passesAll(status) {
  return status.idempotence === "native" && !status.engine_topics.length;
}

function showMode(isNative) {
  document.querySelectorAll(".proxied").forEach((one) => (one.hidden = isNative));
  document.querySelectorAll(".native").forEach((one) => (one.hidden = !isNative));
}

// Most proxies have none of these: their section is there only where there is something in it.
function showNames(found) {
  byId("names_section").hidden = !found.length;
  fill("names", found.map((one) => ({
    key: one.name,
    cells: [
      one.name, one.producer_id, String(one.epoch), `${seconds(one.age_seconds)} ago`, number(one.instances), number(one.fenced),
      one.stopped.map((each) => `${each.topic}-${each.partition}: ${each.last_sequence} (epoch ${each.epoch})`).join(", ") || "–",
    ],
    order: [one.name, one.producer_id.padStart(20, "0"), one.epoch, one.age_seconds, one.instances, one.fenced, one.stopped.length],
  })), "No producer with a name has begun here.");
}

function showHiddenRanges(found) {
  const place = (one) => `${one.topic}-${one.partition}`;
  const why = (one) => one.refusal || one.reason || "–";
  byId("hidden_ranges_section").hidden = !found.length;
  fill("hidden_ranges", found.map((one) => ({
    key: `${place(one)}/${one.first_offset}/${one.last_offset}`,
    cells: [place(one), String(one.first_offset), String(one.last_offset), one.state, `${seconds(one.age_seconds)} ago`, why(one)],
    order: [
      `${one.topic} ${String(one.partition).padStart(10, "0")}`, one.first_offset, one.last_offset, one.state, one.age_seconds, why(one),
    ],
    data: { state: one.state },
  })), "No offsets are hidden.");
}

function showOldClients(found) {
  byId("old_clients_section").hidden = !found.length;
  const sent = (one) => one.requests.map((each) => `${each.api} ${each.version}: ${number(each.requests)}`).join(", ");
  fill("old_clients", found.map((one) => ({
    key: JSON.stringify([one.client_id, one.address, one.software, one.principal]),
    cells: [
      one.client_id, one.address, one.software || "–", one.principal || "–", sent(one), number(one.refused), `${seconds(one.idle_seconds)} ago`,
    ],
    order: [one.client_id, one.address, one.software, one.principal, sent(one), one.refused, one.idle_seconds],
  })), "No client has sent a version that Kafka 4 lacks.");
}

// What is in doubt comes first while there is anything; else it stands below the numbers.
function unknownOutcomesFirst(are) {
  const section = byId("unknown_outcomes_section");
  const place = are ? byId("now").parentElement : byId("brokers_title").parentElement;
  if (section.nextElementSibling !== place) place.before(section);
}

function show(page) {
  showStatus(page.status);
  CHARTS.forEach((one) => chart(one, page.history));
  fill("brokers", page.brokers.map((one) => ({
    key: String(one.id),
    cells: [String(one.id), one.address, one.version || "not known yet", one.ready ? "connected" : "away",
      number(one.produce_connections_busy), number(one.produce_connections_idle),
      `${number(one.own_produce_connections_busy)} of ${number(one.own_produce_connections_busy + one.own_produce_connections_idle)}`, number(one.appends_waiting)],
    data: { state: one.ready ? "connected" : "away" },
  })), "No broker is known yet.");
  fill("unknown_outcomes", page.unknown_outcomes.map((one) => ({
    key: `${one.producer_id}/${one.topic}-${one.partition}/${one.base_sequence}`,
    cells: [`${one.topic}-${one.partition}`, one.producer_id, one.base_sequence === null ? "–" : String(one.base_sequence), seconds(one.age_seconds), one.reason],
  })), "Nothing is in doubt.");
  fill("duplicates", page.duplicates.map((one) => ({
    key: JSON.stringify([one.client_id, one.topic]),
    cells: [one.client_id, one.topic, number(one.count), number(one.answered), number(one.joined)],
  })), "None so far.");
  showClients(page.clients);
  unknownOutcomesFirst(page.unknown_outcomes.length > 0);
  showProducers(page.producers);
  showNames(page.names);
  showHiddenRanges(page.hidden_ranges);
  showOldClients(page.old_clients.clients);
  showFindings(page.findings);
  fill("passing", page.passing.map((one) => ({ key: one.api, cells: [one.api, number(one.requests)] })), "No request has come yet.");
  byId("troubles_section").hidden = !page.troubles.length;
  showLines("troubles", page.troubles);
  showLines("events", page.events);
  showMode(passesAll(page.status));
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
    if (filter.size) page.producers = await ask(`api/v1/producers?${filter}`).catch(() => ({ producers: [], in_memory: 0 }));
    if (mine !== asked) return;
    answeredAt = new Date();
    document.body.classList.remove("stale");
    latest = page;
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
byId("clients_filter").addEventListener("submit", (event) => event.preventDefault());
byId("clients_filter").addEventListener("input", () => latest && show(latest));
byId("filter").addEventListener("submit", (event) => event.preventDefault());
byId("filter").addEventListener("input", () => update());
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : paused || update()));
update();

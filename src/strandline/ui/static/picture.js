// The newest picture of the cluster, kept up to date by the server's events, and who wants to know.

const NAMES = ["topic", "partition", "leader", "epoch", "replicas", "inSync", "copies"];
const COPY_NAMES = ["broker", "start", "highWatermark", "lastStable", "end", "epochs", "isOffline", "reason"];

export class Live {
  constructor() {
    this.head = null;
    this.rows = new Map();
    this.trouble = null;
    this.isConnected = false;
    this.listeners = new Set();
    this.waiting = false;
  }

  start() {
    const source = new EventSource("/api/events");
    source.addEventListener("picture", (event) => this.take(JSON.parse(event.data)));
    source.addEventListener("trouble", (event) => { this.trouble = JSON.parse(event.data); this.tell(); });
    source.onopen = () => { this.isConnected = true; this.tell(); };
    source.onerror = () => { this.isConnected = false; this.tell(); };
    window.addEventListener("pagehide", () => source.close());
  }

  take(changes) {
    if (changes.since === null) this.rows.clear();
    for (const row of changes.partitions) this.rows.set(`${row[0]}\n${row[1]}`, row);
    for (const [topic, partition] of changes.gone) this.rows.delete(`${topic}\n${partition}`);
    const { number, wall_ms, controller, brokers } = changes;
    this.head = { number, wall_ms, controller, brokers };
    this.tell();
  }

  // At most one drawing for each frame of the screen, however much comes.
  tell() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; for (const listener of this.listeners) listener(); });
  }

  listen(listener) {
    this.listeners.add(listener);
    listener();
    return () => this.listeners.delete(listener);
  }

  partition(topic, number) {
    const row = this.rows.get(`${topic}\n${number}`);
    return row ? named(row) : null;
  }

  get partitions() {
    return [...this.rows.values()].map(named).sort((a, b) => a.topic < b.topic ? -1 : a.topic > b.topic ? 1 : a.partition - b.partition);
  }
}

export function named(row) {
  const found = Object.fromEntries(NAMES.map((name, at) => [name, row[at]]));
  found.copies = found.copies.map((copy) => Object.fromEntries(COPY_NAMES.map((name, at) => [name, copy[at]])));
  found.leading = found.copies.find((copy) => copy.broker === found.leader) ?? null;
  return found;
}

// What is wrong with a partition, worst first; null if nothing is.
export function ailment(partition) {
  if (partition.leader === -1) return ["no leader", "bad"];
  if (partition.copies.some((copy) => copy.isOffline)) return ["offline copy", "bad"];
  if (partition.inSync && partition.inSync.length < partition.replicas.length) return ["under-replicated", "warn"];
  return null;
}

// The newest picture of the cluster, kept up to date by the server's events, and who wants to know.

const NAMES = ["topic", "partition", "leader", "epoch", "replicas", "inSync", "copies"];
const COPY_NAMES = ["broker", "start", "highWatermark", "lastStable", "end", "epochs", "isOffline", "reason", "size"];

const AGAIN_MS = 3000;

export class Live {
  constructor() {
    this.head = null;
    this.rows = new Map(); // row by key, as the server sends it
    this.named = new Map(); // the same with names, made when a page asks for it
    this.sorted = null; // partitions by topic, in order; null when others have come or gone
    this.trouble = null;
    this.isConnected = false;
    this.listeners = new Set();
    this.waiting = false;
  }

  // A hidden page gets no updates.
  start() {
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.stop(); else this.connect(); });
    window.addEventListener("pagehide", () => this.stop());
    window.addEventListener("pageshow", (event) => { if (event.persisted) this.connect(); });
    if (!document.hidden) this.connect();
  }

  stop() {
    this.source?.close();
    this.source = null;
  }

  connect() {
    if (this.source) return;
    const source = new EventSource("/api/events");
    source.addEventListener("picture", (event) => this.take(JSON.parse(event.data)));
    source.addEventListener("trouble", (event) => { this.trouble = JSON.parse(event.data); this.tell(); });
    source.onopen = () => { this.isConnected = true; this.tell(); };
    source.onerror = () => {
      this.isConnected = false;
      this.tell();
      // A browser asks again by itself where nothing answers, but not where the answer was an error.
      if (source.readyState === EventSource.CLOSED && source === this.source) setTimeout(() => { if (source === this.source) { this.stop(); this.connect(); } }, AGAIN_MS);
    };
    this.source = source;
  }

  take(changes) {
    if (changes.since === null) { this.rows.clear(); this.named.clear(); this.sorted = null; }
    for (const row of changes.partitions) {
      const key = `${row[0]}\n${row[1]}`;
      if (!this.rows.has(key)) this.sorted = null;
      this.rows.set(key, row);
      this.named.delete(key);
    }
    for (const [topic, partition] of changes.gone) {
      this.sorted = null;
      this.rows.delete(`${topic}\n${partition}`);
      this.named.delete(`${topic}\n${partition}`);
    }
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
    return this.at(`${topic}\n${number}`);
  }

  at(key) {
    let found = this.named.get(key);
    if (!found && this.rows.has(key)) this.named.set(key, found = named(this.rows.get(key)));
    return found ?? null;
  }

  get partitions() {
    return [...this.rows.keys()].map((key) => this.at(key));
  }

  // All partitions by topic, both in order.
  get topics() {
    if (this.sorted === null) {
      const order = [...this.rows].sort(([, a], [, b]) => a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] - b[1]);
      this.sorted = new Map();
      for (const [key, [topic]] of order) {
        if (!this.sorted.has(topic)) this.sorted.set(topic, []);
        this.sorted.get(topic).push(key);
      }
    }
    return new Map([...this.sorted].map(([topic, keys]) => [topic, keys.map((key) => this.at(key))]));
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
  if (!partition.leading) return ["leader silent", "warn"];
  if (partition.inSync && partition.inSync.length < partition.replicas.length) return ["under-replicated", "warn"];
  return null;
}

// Why nothing can be heard from a partition's leader now; null if nothing is known to be in the way.
export function leaderTrouble(live, topic, number) {
  const partition = live.partition(topic, number);
  if (!partition) return null;
  if (partition.leader === -1) return "There is no leader: one is being elected among the replicas that may lead, as soon as one of them is there.";
  const leader = live.head.brokers.find((each) => each.id === partition.leader);
  if (leader && !leader.error) return null;
  return `Broker ${partition.leader}, which leads it, does not answer. If it is gone, another leader is elected when its session has ended.`;
}

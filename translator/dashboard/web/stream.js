// The events of the server: everything at first, then what changes. A connection that is lost or refused is
// opened again.

const RETRY_MS = 3000;
const SILENT_MS = 8000;

export class Stream {
  /** `handlers` by the name of the event; `state` is called with "live", "stalled" or "lost" and a text. */
  constructor(handlers, state) {
    this.handlers = handlers;
    this.state = state;
    this.heard = Date.now();
    setInterval(() => this.watch(), 1000);
  }

  open(query) {
    this.query = query;
    clearTimeout(this.retry);
    this.source?.close();
    const source = (this.source = new EventSource(`events?${query}`));
    for (const [name, handle] of Object.entries(this.handlers)) {
      source.addEventListener(name, (event) => {
        this.heard = Date.now();
        this.state("live", "");
        handle(JSON.parse(event.data));
      });
    }
    source.addEventListener("stalled", (event) => {
      this.heard = Date.now();
      this.state("stalled", JSON.parse(event.data).reason);
    });
    source.onerror = () => {
      source.close();
      this.state("lost", "");
      this.retry = setTimeout(() => this.open(this.query), RETRY_MS);
    };
  }

  watch() {
    if (Date.now() - this.heard > SILENT_MS) this.state("lost", "");
  }
}

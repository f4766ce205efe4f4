// A form that sends one inference to a model, in any dialect of a listener.

import { at, el, write } from "./dom.js";
import { answer, programs } from "./answer.js";
import { InputField } from "./input.js";

export class Trial {
  constructor() {
    this.listener = el("select", { id: "trial-listener", onchange: () => this.describe() });
    this.model = el("input", { type: "text", id: "trial-model", list: "trial-models", autocomplete: "off", required: true, onchange: () => this.describe() });
    this.models = el("datalist", { id: "trial-models" });
    this.version = el("input", { type: "text", id: "trial-version", placeholder: "any" });
    this.credentials = el("input", { type: "password", id: "trial-authorization", placeholder: "Bearer …", autocomplete: "off" });
    this.inputs = el("div", { class: "inputs" });
    this.status = el("p", { role: "status" });
    this.send = el("button", { type: "submit", class: "button primary", disabled: true }, "Send");
    this.result = el("div", { class: "result" });
    const field = (label, control) => {
      control.dataset.term = control.id;
      return el("div", { class: "field" }, el("label", { for: control.id, "data-term": control.id }, label), control);
    };
    const fields = el(
      "div",
      { class: "fields" },
      field("Listener and dialect", this.listener),
      field("Model", this.model),
      field("Version", this.version),
      field("Authorization header", this.credentials),
    );
    const submit = (event) => {
      event.preventDefault();
      this.submit();
    };
    const form = el("form", { class: "card", onsubmit: submit }, fields, this.models, this.inputs, el("div", { class: "tools" }, this.send, this.status));
    at("trial").append(form, this.result);
    this.known = "";
    this.turn = 0;
  }

  /** What can be chosen, from the entries of the server. */
  show({ server, models }) {
    const names = [...models.keys()].sort();
    const places = server.listeners.flatMap(({ address, transport, dialects }) =>
      Object.keys(dialects).map((name) => {
        const [dialect, own] = name.split("/");
        return { listener: address, dialect, transport: own ?? transport };
      }),
    );
    const now = JSON.stringify([names, places]);
    if (now === this.known) return;
    this.known = now;
    const chosen = this.listener.value;
    const options = places.map((place) => el("option", { value: JSON.stringify(place) }, `${place.dialect} over ${place.transport}, ${place.listener}`));
    this.listener.replaceChildren(...options);
    if (chosen) this.listener.value = chosen;
    this.models.replaceChildren(...names.map((name) => el("option", { value: name })));
    if (!this.model.value) write(this.status, "Choose a model.");
  }

  request(more) {
    const headers = this.credentials.value ? { authorization: this.credentials.value } : {};
    return { ...JSON.parse(this.listener.value), model: this.model.value, version: this.version.value, headers, ...more };
  }

  async post(request) {
    const reply = await fetch("try", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(request) });
    if (!reply.ok) throw new Error((await reply.text()).trim());
    return reply.json();
  }

  /** Shows a field for each input of the model. */
  async describe() {
    const turn = (this.turn += 1);
    this.send.disabled = true;
    if (!this.model.value) return write(this.status, "Choose a model.");
    write(this.status, "Reading the inputs of the model…");
    try {
      const { signature, error } = await this.post(this.request({ describe: true }));
      // a newer choice has its own answer
      if (turn !== this.turn) return;
      if (error) throw new Error(`${error.code}: ${error.message}`);
      this.fields = signature.inputs.map((spec) => new InputField(spec));
      this.inputs.replaceChildren(...this.fields.map((each) => each.element));
      this.send.disabled = false;
      write(this.status, "");
    } catch (failure) {
      if (turn !== this.turn) return;
      this.inputs.replaceChildren();
      write(this.status, failure.message);
    }
  }

  async submit() {
    write(this.status, "Sending…");
    this.send.disabled = true;
    try {
      const inputs = await Promise.all(this.fields.map((each) => each.value()));
      const found = await this.post(this.request({ inputs }));
      write(this.status, found.error ? `${found.error.code}: ${found.error.message}` : `Answered in ${found.ms} ms by ${found.model}${found.version ? `, version ${found.version}` : ""}.`);
      this.status.className = found.error ? "bad" : "good";
      this.result.replaceChildren(...(found.outputs ?? []).map(answer), ...programs(found.snippets));
    } catch (failure) {
      write(this.status, failure.message);
      this.status.className = "bad";
    }
    this.send.disabled = false;
  }
}

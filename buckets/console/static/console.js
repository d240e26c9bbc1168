// What pages do beyond links and forms: charts, selections, and completion while a rule is written.
"use strict";

(() => {
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const names = {
    events_per_s: "events/s", delay_p50_ms: "p50", delay_p99_ms: "p99", alerts_per_s: "alerts/s", batch_ms: "batch (p50)",
    lag: "behind (messages)", alerts: "alerts",
  };

  // --- charts ------------------------------------------------------------------------------------------------

  class Chart {
    constructor(element, series, bars) {
      Object.assign(this, { element, series, bars, columns: null, plot: null });
      new ResizeObserver(() => this.plot?.setSize(this.size())).observe(element);
      dark.addEventListener("change", () => this.draw());
    }

    size() { return { width: Math.max(this.element.clientWidth, 120), height: 150 }; }

    show(columns) {
      this.columns = columns;
      if (!columns.time_s.length) {
        this.element.innerHTML = "<p class='note'>nothing yet; it fills as the job runs</p>";
        this.plot = null;
      } else if (this.plot) this.plot.setData(this.data());
      else this.draw();
    }

    data() { return [this.columns.time_s, ...this.series.map(name => this.columns[name])]; }

    draw() {
      if (!this.columns || !this.columns.time_s.length) return;
      this.plot?.destroy();
      this.element.replaceChildren();
      const line = css("--line"), text = css("--dim"), colours = [css("--accent"), css("--warn")];
      const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px system-ui, sans-serif" };
      const days = [3600 * 24, "{MM}-{DD}", null, null, null, null, null, null, 1];
      const times = [days, [3600, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
        [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1], [1, "{HH}:{mm}:{ss}", "\n{MM}-{DD}", null, null, null, null, null, 1]];
      const many = v => v == null ? "–" : v.toLocaleString("en");
      this.plot = new uPlot({
        ...this.size(),
        tzDate: s => uPlot.tzDate(new Date(s * 1e3), "Etc/UTC"),
        cursor: { y: false, drag: { x: true, y: false } },
        scales: { x: this.bars ? { range: (u, from, to) => [from - 43200, to + 43200] } : {}, y: { range: (u, low, high) => [0, (high || 1) * 1.1] } },
        axes: [{ ...axis, values: times }, { ...axis, size: 54, values: (u, values) => values.map(v => v.toLocaleString("en")) }],
        series: [
          { label: "UTC", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" },
          ...this.series.map((name, at) => ({
            label: names[name] || name, stroke: colours[at], width: 1.6, points: { show: this.columns.time_s.length < 2 },
            value: (u, v) => many(v), ...(this.bars ? { paths: uPlot.paths.bars({ size: [0.7, 60] }), fill: css("--soft") } : {}),
          })),
        ],
      }, this.data(), this.element);
    }
  }

  const charts = [];
  const start = async () => {
    for (const element of document.querySelectorAll("[data-chart]")) charts.push(new Chart(element, element.dataset.chart.split(" "), false));
    for (const element of document.querySelectorAll("[data-bars]")) new Chart(element, element.dataset.bars.split(" "), true).show(JSON.parse(element.dataset.values));
    const live = document.querySelector("[data-samples]");
    // Told each second; a page that is slow to come would be asked for again and again.
    live?.addEventListener("begun", () => location.reload(), {once: true});
    if (live && charts.length) {
      let known = await (await fetch(live.dataset.samples)).json();
      charts.forEach(chart => chart.show(known));
      live.addEventListener("samples", event => {
        const added = JSON.parse(event.detail.data);
        const last = known.time_s.at(-1) ?? 0;
        const from = added.time_s.findIndex(s => s > last);
        if (from < 0) return;
        for (const name of Object.keys(known)) known[name] = [...known[name], ...added[name].slice(from)].slice(-3600);
        charts.forEach(chart => chart.show(known));
      });
    }
  };

  // --- selections ----------------------------------------------------------------------------------------------

  const selected = () => [...document.querySelectorAll("input[name=alert]:checked")];
  const tell = () => {
    const place = document.querySelector("[data-selected]"), count = selected().length;
    if (place) place.textContent = count ? `${count} selected; the list stands still meanwhile.` : "Select alerts to give a verdict.";
  };
  document.addEventListener("change", event => {
    if (event.target.matches("[data-select-all]")) {
      for (const box of document.querySelectorAll("input[name=alert]")) box.checked = event.target.checked;
    }
    if (event.target.matches("[data-select-all], input[name=alert]")) tell();
  });
  // A list that somebody selects from must not move under the hand.
  document.addEventListener("htmx:sse:before:message", event => {
    if (event.target.matches("[data-pause-while-selected]") && selected().length) event.preventDefault();
  });
  // A press of a letter goes to a page, as in `g a`; not while one writes.
  let before = "";
  document.addEventListener("keydown", event => {
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const link = before === "g" && [...document.querySelectorAll("header nav a")].find(a => a.textContent.trim().toLowerCase().startsWith(event.key));
    before = event.key;
    if (link) { before = ""; link.click(); }
    if (event.key === "/" && document.querySelector(".filters")) { event.preventDefault(); document.querySelector(".filters select, .filters input").focus(); }
  });

  // --- completion of a rule, from its JSON schema --------------------------------------------------------------

  class Completion {
    constructor(field) {
      Object.assign(this, { field, schema: null, list: document.createElement("ul"), at: 0 });
      this.list.className = "completion";
      this.list.id = "completions";
      this.list.setAttribute("role", "listbox");
      this.list.setAttribute("aria-label", "Completions");
      this.list.hidden = true;
      field.after(this.list);
      field.setAttribute("aria-autocomplete", "list");
      field.setAttribute("aria-controls", this.list.id);
      field.addEventListener("keydown", event => this.key(event));
      field.addEventListener("blur", () => this.close());
      this.list.addEventListener("pointerdown", event => { event.preventDefault(); this.take(event.target.textContent); });
    }

    async key(event) {
      if (event.key === " " && event.ctrlKey) { event.preventDefault(); await this.open(); return; }
      if (this.list.hidden) return;
      const moves = { ArrowDown: 1, ArrowUp: -1 };
      if (event.key in moves) { event.preventDefault(); this.choose(this.at + moves[event.key]); }
      else if (event.key === "Enter" || event.key === "Tab") { event.preventDefault(); this.take(this.list.children[this.at].textContent); }
      else if (event.key === "Escape") { event.preventDefault(); this.close(); }
      else setTimeout(() => this.open());
    }

    // Which schemas apply where one writes: found by the names to the left of each line above that stands less deep.
    here() {
      const before = this.field.value.slice(0, this.field.selectionStart), lines = before.split("\n"), line = lines.pop();
      const word = line.match(/[\w-]*$/)[0], names = [];
      const plain = text => text.replace(/- /, "  ");
      let depth = plain(line).search(/\S|$/);
      const flow = line.slice(0, -word.length || undefined).match(/([\w]+):\s*\{[^}]*$/);
      const value = line.match(/([\w]+):\s*[\w-]*$/);
      if (flow) names.unshift(flow[1]);
      for (const above of lines.reverse()) {
        const indent = plain(above).search(/\S/), name = plain(above).match(/^\s*([\w-]+):\s*$/);
        if (indent >= 0 && indent < depth) { depth = indent; if (name) names.unshift(name[1]); }
      }
      const inFlow = flow && line.slice(line.lastIndexOf("{")).match(/([\w]+):\s*[\w-]*$/);
      return { word, names, value: flow ? inFlow && inFlow[1] : value && value[1] };
    }

    forms(node) {
      if (!node) return [];
      if (node.$ref) return this.forms(node.$ref.split("/").slice(1).reduce((found, name) => found?.[name], this.schema));
      return [node, ...["anyOf", "oneOf", "allOf"].flatMap(name => (node[name] || []).flatMap(each => this.forms(each))), ...(node.items ? this.forms(node.items) : [])];
    }

    inner(nodes, name) {
      return nodes.flatMap(node => this.forms(node.properties?.[name] || (typeof node.additionalProperties === "object" ? node.additionalProperties : null)));
    }

    words({ names, value }) {
      let nodes = this.forms(this.schema);
      for (const name of names) { const found = this.inner(nodes, name); if (found.length) nodes = found; }
      if (value) return this.inner(nodes, value).flatMap(node => node.enum || (node.const !== undefined ? [node.const] : node.type === "boolean" ? [true, false] : []));
      return nodes.flatMap(node => [...Object.keys(node.properties || {}), ...(node.propertyNames?.enum || [])].map(name => `${name}: `)).concat(nodes.flatMap(node => node.enum || []));
    }

    async open() {
      this.schema ??= await (await fetch(this.field.dataset.complete)).json();
      const here = this.here();
      const fit = [...new Set(this.words(here).filter(word => word !== null).map(String))].filter(word => word.startsWith(here.word) && word !== here.word);
      this.list.replaceChildren(...fit.slice(0, 40).map((word, at) => {
        const item = document.createElement("li");
        item.setAttribute("role", "option");
        item.id = `completion-${at}`;
        item.textContent = word;
        return item;
      }));
      this.list.hidden = !fit.length;
      if (fit.length) this.choose(0);
    }

    choose(at) {
      const items = [...this.list.children];
      this.at = (at + items.length) % items.length;
      items.forEach((item, index) => item.setAttribute("aria-selected", String(index === this.at)));
      this.field.setAttribute("aria-activedescendant", items[this.at].id);
      items[this.at].scrollIntoView({ block: "nearest" });
    }

    take(word) {
      const at = this.field.selectionStart, { word: begun } = this.here();
      this.field.setRangeText(word, at - begun.length, at, "end");
      this.field.dispatchEvent(new Event("input", { bubbles: true }));
      this.close();
    }

    close() {
      this.list.hidden = true;
      this.field.removeAttribute("aria-activedescendant");
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    for (const field of document.querySelectorAll("[data-complete]")) new Completion(field);
  });
  document.addEventListener("DOMContentLoaded", start);
})();

"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { strings, spaces, more } = data;
  const count = data.nodes.depth.length;
  const column = (name) => Int32Array.from(data.nodes[name]);
  const [depth, space, length, kind, name, value, meaning, doc, type, problem] =
    ["depth", "space", "length", "kind", "name", "value", "meaning", "doc", "type", "problem"].map(column);
  const start = Float64Array.from(data.nodes.start); // a file may be larger than 2 GB
  data.nodes = null;
  const $ = (id) => document.getElementById(id);
  const make = (tag, classes, text) => {
    const made = document.createElement(tag);
    if (classes) made.className = classes;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const hex = (number, digits) => number.toString(16).padStart(digits, "0");
  const amount = (n) => `${n.toLocaleString("en")} byte${n === 1 ? "" : "s"}`;

  // Where subtrees end, which node is around which, and whether something is wrong within.
  const after = new Int32Array(count), around = new Int32Array(count).fill(-1), troubled = new Uint8Array(count);
  {
    const open = [];
    for (let i = 0; i <= count; i++) {
      const level = i < count ? depth[i] : -1;
      while (open.length && depth[open[open.length - 1]] >= level) after[open.pop()] = i;
      if (i === count) break;
      if (open.length) around[i] = open[open.length - 1];
      open.push(i);
      if (problem[i]) for (let one = around[i]; one >= 0 && !troubled[one]; one = around[one]) troubled[one] = 1;
    }
  }
  const isParent = (i) => after[i] > i + 1;
  const problems = [], damage = [];
  const damaged = strings.indexOf("damage");
  for (let i = 0; i < count; i++) {
    if (problem[i]) problems.push(i);
    if (kind[i] === damaged && !depth[i]) damage.push(i);
  }

  // The bytes, and for each space its leaves in the order of their bytes.
  for (const one of spaces) {
    const raw = atob(one.bytes);
    one.data = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) one.data[i] = raw.charCodeAt(i);
    one.bytes = null;
    one.leaves = [];
    let at = 0;
    one.ranges = one.ranges.map(([from, size]) => ({ from, size, at: (at += size) - size }));
    one.rows = layout(one);
  }
  for (let i = 0; i < count; i++) {
    const bare = !isParent(i) || space[i + 1] !== space[i];
    if (bare && length[i]) spaces[space[i]].leaves.push(i);
  }

  /** Rows of 16 bytes, at addresses that are multiples of 16; a row of words where a range starts that is not the first. */
  function layout(one) {
    const rows = [];
    let last = null;
    for (const range of one.ranges) {
      if (last && last.from + last.size !== range.from) rows.push({ gap: range.from - last.from - last.size, from: range.from });
      const end = range.from + range.size;
      for (let at = range.from - (range.from % 16); at < end; at += 16) {
        const previous = rows[rows.length - 1];
        // A range that starts where the last one ended goes on in its row.
        if (previous && previous.row === at) previous.to = Math.min(at + 16, end);
        else rows.push({ row: at, from: Math.max(at, range.from), to: Math.min(at + 16, end) });
      }
      last = range;
    }
    return rows;
  }
  function byteAt(one, address) {
    const found = one.ranges.find((range) => address >= range.from && address < range.from + range.size);
    return found ? one.data[found.at + address - found.from] : -1;
  }
  function leafAt(s, address) {
    const leaves = spaces[s].leaves;
    let low = 0, high = leaves.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (start[leaves[middle]] <= address) low = middle + 1; else high = middle;
    }
    const found = low ? leaves[low - 1] : -1;
    return found >= 0 && address < start[found] + length[found] ? found : -1;
  }

  // State
  const opened = new Uint8Array(count);
  let visible = new Int32Array(0), here = 0, chosen = -1, hot = -1, cursor = -1;

  function rank() { // which nodes are in sight
    const out = [];
    for (let i = 0; i < count; ) {
      out.push(i);
      i = opened[i] ? i + 1 : after[i];
    }
    visible = Int32Array.from(out);
  }
  function positionOf(i) { // by halves: nodes are in order
    let low = 0, high = visible.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (visible[middle] === i) return middle;
      if (visible[middle] < i) low = middle + 1; else high = middle - 1;
    }
    return -1;
  }
  function reveal(i) {
    let changed = false;
    for (let one = around[i]; one >= 0; one = around[one]) if (!opened[one]) { opened[one] = 1; changed = true; }
    if (changed) rank();
  }
  /** The innermost node around that is in sight. */
  function shownFor(i) {
    let found = i;
    for (let one = around[i]; one >= 0; one = around[one]) if (!opened[one]) found = one;
    return found;
  }
  const inSpace = (i, s) => { // the part of a node that lies in a space: itself, or what it is packed in
    while (i >= 0 && space[i] !== s) i = spaces[space[i]].node;
    return i;
  };

  // Lists of rows, of which those in sight are drawn
  function list(box, height, total, draw) {
    const tall = box.firstElementChild, rows = tall.firstElementChild;
    let first = -1, last = -1;
    const show = (anew) => {
      const size = total() * height;
      tall.style.height = `${size}px`;
      const from = Math.max(0, Math.floor(box.scrollTop / height) - 12);
      const to = Math.min(total(), Math.ceil((box.scrollTop + box.clientHeight) / height) + 12);
      if (!anew && from === first && to === last) return;
      first = from; last = to;
      rows.style.transform = `translateY(${from * height}px)`;
      rows.replaceChildren(...Array.from({ length: Math.max(0, to - from) }, (_, i) => draw(from + i)));
    };
    box.addEventListener("scroll", () => show(false), { passive: true });
    new ResizeObserver(() => show(true)).observe(box);
    const to = (i, middle) => {
      const top = i * height;
      if (top < box.scrollTop || top + height > box.scrollTop + box.clientHeight)
        box.scrollTop = middle ? top - box.clientHeight / 2 + height : top < box.scrollTop ? top : top + height - box.clientHeight;
      show(false);
    };
    return { show, to, rows };
  }

  // Bytes
  const hexBox = $("hex"), treeBox = $("tree");
  const bytes = list(hexBox, 23, () => spaces[here].rows.length, drawBytes);
  function drawBytes(n) {
    const one = spaces[here], row = one.rows[n];
    if (row.gap !== undefined)
      return make("div", "hex head", `${amount(row.gap)} that are not shown; then byte ${row.from}`);
    const torn = !here && damage.some((i) => start[i] < row.to && start[i] + length[i] > row.from);
    const line = make("div", torn ? "hex bad" : "hex"), texts = [];
    line.append(make("span", "at", (here ? "+" : "") + hex(row.row, here ? 7 : 8)));
    let leaf = -1;
    for (let i = 0; i < 16; i++) {
      const at = row.row + i, cell = make("b"), sign = make("i", "", " ");
      const byte = at >= row.from && at < row.to ? byteAt(one, at) : -1;
      if (byte < 0) cell.textContent = "  ";
      else {
        if (leaf < 0 || at >= start[leaf] + length[leaf]) leaf = leafAt(here, at);
        cell.textContent = hex(byte, 2);
        sign.textContent = byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·";
        const classes = paint(leaf, at);
        cell.className = classes + (leaf >= 0 && at === start[leaf] ? " first" : "");
        sign.className = classes;
        cell.dataset.at = sign.dataset.at = at;
      }
      line.append(cell);
      texts.push(sign);
    }
    line.append(make("span", "gap"), ...texts);
    return line;
  }
  const within = (i, at) => i >= 0 && at >= start[i] && at < start[i] + length[i];
  function paint(leaf, at) {
    let classes = leaf >= 0 ? `k-${strings[kind[leaf]]}` : "";
    if (leaf >= 0 && problem[leaf]) classes += " wrong";
    const lit = inSpace(hot, here), picked = inSpace(chosen, here);
    if (within(lit, at)) classes += " hot";
    if (within(picked, at)) classes += " chosen";
    if (at === cursor) classes += " cursor";
    return classes;
  }
  function repaint() { // only the colours of what is drawn
    for (const cell of bytes.rows.querySelectorAll("[data-at]")) {
      const at = Number(cell.dataset.at), leaf = leafAt(here, at);
      cell.className = paint(leaf, at) + (cell.tagName === "B" && leaf >= 0 && at === start[leaf] ? " first" : "");
    }
    for (const row of fields.rows.children) {
      const i = Number(row.dataset.node);
      row.classList.toggle("hot", i === hotRow());
      row.classList.toggle("chosen", i === chosen);
      row.setAttribute("aria-selected", i === chosen);
    }
    const picked = chosen >= 0 && positionOf(chosen) >= 0 ? `f${chosen}` : "";
    if (picked) treeBox.setAttribute("aria-activedescendant", picked); else treeBox.removeAttribute("aria-activedescendant");
  }
  const hotRow = () => (hot >= 0 ? shownFor(hot) : -1);
  function rowOf(address) {
    const rows = spaces[here].rows;
    let low = 0, high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((rows[middle].row ?? rows[middle].from) <= address) low = middle + 1; else high = middle;
    }
    return Math.max(0, low - 1);
  }
  function enter(s) {
    if (s === here) return;
    here = s;
    cursor = -1;
    hexBox.scrollTop = 0;
    trail();
    bytes.show(true);
  }
  function trail() { // whose bytes these are
    const steps = [];
    for (let s = here; s >= 0; s = spaces[s].around) steps.unshift(s);
    const made = steps.flatMap((s, i) => {
      const step = make("button", "", s ? `${strings[name[spaces[s].node]]} at ${spaces[s].start}` : "file");
      if (s === here) step.setAttribute("aria-current", "true");
      step.addEventListener("click", () => { const inner = here; enter(s); if (s !== inner && s === spaces[inner].around) pick(spaces[inner].node, true); });
      return i ? [make("span", "", "›"), step] : [step];
    });
    const one = spaces[here];
    made.push(make("span", "", here ? `${one.how}, ${amount(one.data.length)}` : amount(data.size) + (one.data.length < data.size ? `, ${one.data.length.toLocaleString("en")} shown` : "")));
    $("where").replaceChildren(...made);
  }

  // Fields
  const fields = list(treeBox, 25, () => visible.length, drawField);
  function drawField(n) {
    const i = visible[n], row = make("div", `field${isParent(i) ? " parent" : ""}${problem[i] ? " trouble" : ""}`);
    const own = strings[kind[i]], extra = more[i] || {};
    row.dataset.node = i;
    row.id = `f${i}`;
    row.setAttribute("role", "treeitem");
    row.setAttribute("aria-level", depth[i] + 1);
    row.setAttribute("aria-selected", i === chosen);
    if (isParent(i)) row.setAttribute("aria-expanded", opened[i] === 1);
    row.style.paddingLeft = `${6 + depth[i] * 15}px`;
    row.append(make("span", `twist${opened[i] ? " open" : ""}`, isParent(i) ? "▶" : ""));
    row.append(make("span", isParent(i) ? "name" : `name k-${own}`, strings[name[i]]));
    if (extra.inside !== undefined) row.append(make("span", "packed", spaces[extra.inside].how));
    if (!opened[i] && troubled[i] && !problem[i]) row.append(make("span", "within"));
    if (problem[i]) row.append(make("span", "mark", "✗"));
    else if (extra.check && extra.check[4]) row.append(make("span", "good", "✓"));
    if (value[i]) row.append(make("span", `value k-${own}`, strings[value[i]]));
    row.append(make("span", "said", strings[problem[i] || meaning[i] || (isParent(i) || !value[i] ? doc[i] : 0)]));
    const size = length[i].toLocaleString("en");
    row.append(make("span", "size", depth[i] ? size : `0x${hex(start[i], 1)}   ${amount(length[i])}`));
    if (i === hotRow()) row.classList.add("hot");
    if (i === chosen) row.classList.add("chosen");
    return row;
  }
  function toggle(i, want = !opened[i]) {
    if (!isParent(i) || !!opened[i] === want) return;
    opened[i] = want ? 1 : 0;
    rank();
    fields.show(true);
    repaint();
  }

  // What is chosen
  function pick(i, scroll, follow = true) {
    if (i < 0) return;
    chosen = i;
    reveal(i);
    if (follow) {
      if (inSpace(i, here) < 0 || (space[i] !== here && scroll)) enter(space[i]);
      const place = inSpace(i, here);
      if (length[place] || place === i) bytes.to(rowOf(start[place]), true);
    }
    fields.show(true);
    fields.to(positionOf(i), scroll);
    describe(i);
    repaint();
  }
  function lit(i) {
    if (i === hot) return;
    hot = i;
    repaint();
  }

  function path(i) {
    const steps = [];
    for (let one = i; one >= 0; one = around[one]) steps.unshift(strings[name[one]]);
    return steps.slice(0, -1).map((one) => `${one} › `).join("");
  }
  function address(i) {
    const steps = [start[i]];
    for (let s = space[i]; s; s = spaces[s].around) steps.unshift(spaces[s].start);
    const last = steps.pop();
    return steps.map((one) => `@${one}`).join("") + (steps.length ? "+" : "") + last;
  }
  function describe(i) {
    const extra = more[i] || {}, box = $("detail"), head = make("h2"), table = make("table");
    head.append(make("span", "", path(i)), strings[name[i]]);
    const row = (label, text, classes) => {
      if (text === "" || text === undefined) return;
      const line = make("tr");
      line.append(make("th", "", label), text instanceof Node ? text : make("td", classes, text));
      table.append(line);
    };
    row("wrong", strings[problem[i]], "bad prose");
    row("then", extra.system, "prose");
    row("value", strings[value[i]]);
    row("meaning", strings[meaning[i]], "prose");
    if (extra.check) {
      const [stored, computed, from, to, right] = extra.check;
      const bytes = `of bytes ${from} to ${to - 1}`;
      row("checksum", right ? `right, ${bytes}` : `${stored} is stored, ${computed} is that ${bytes}`, right ? "right prose" : "bad prose");
    }
    if (extra.bits) {
      const cell = make("td"), bits = make("table", "bits");
      for (const one of extra.bits) {
        const line = make("tr");
        for (const text of [one[1], one[0], one[2], one[3]]) line.append(make("td", "", text));
        bits.append(line);
      }
      cell.append(bits);
      row("bits", cell);
    }
    row("type", strings[type[i]], "prose");
    const size = length[i], from = address(i);
    row("where", `${from} (0x${hex(start[i], 1)}), ${amount(size)}${size > 1 ? `, to ${start[i] + size - 1}` : ""}`);
    const one = spaces[space[i]], shown = [];
    for (let at = start[i]; at < start[i] + Math.min(size, 96); at++) { const byte = byteAt(one, at); if (byte >= 0) shown.push(hex(byte, 2)); }
    row("bytes", shown.join(" ") + (size > 96 ? ` … ${(size - 96).toLocaleString("en")} more` : ""));
    if (extra.row !== undefined) row("row", `${extra.row.toLocaleString("en")} of its frame`, "prose");
    if (extra.inside !== undefined) row("holds", `${amount(spaces[extra.inside].data.length)}, ${spaces[extra.inside].how}; press Enter to see them`, "prose");
    row("upstream", extra.source, "prose");
    const parts = [head];
    if (doc[i]) parts.push(make("p", "doc", strings[doc[i]]));
    box.replaceChildren(...parts, table);
    box.scrollTop = 0;
  }

  // Pointer
  const nodeOf = (event) => { const row = event.target.closest(".field"); return row ? Number(row.dataset.node) : -1; };
  const placeOf = (event) => { const at = event.target.dataset && event.target.dataset.at; return at === undefined ? -1 : Number(at); };
  treeBox.addEventListener("mouseover", (event) => lit(nodeOf(event)));
  treeBox.addEventListener("mouseleave", () => lit(-1));
  treeBox.addEventListener("click", (event) => {
    const i = nodeOf(event);
    if (i < 0) return;
    if (event.target.classList.contains("twist")) { toggle(i); return; }
    if (chosen === i || (isParent(i) && !opened[i])) toggle(i);
    cursor = -1;
    pick(i, false);
    if (space[i] !== here) { enter(space[i]); pick(i, false); }
  });
  hexBox.addEventListener("mouseover", (event) => { const at = placeOf(event); lit(at < 0 ? -1 : leafAt(here, at)); });
  hexBox.addEventListener("mouseleave", () => lit(-1));
  hexBox.addEventListener("click", (event) => { const at = placeOf(event); if (at >= 0) toByte(at); });
  hexBox.addEventListener("dblclick", (event) => { const at = placeOf(event); if (at >= 0) inside(leafAt(here, at)); });
  function toByte(at) {
    cursor = at;
    const leaf = leafAt(here, at);
    if (leaf >= 0) pick(leaf, true, false);
    bytes.to(rowOf(at), false);
    repaint();
  }
  function inside(i) { // into what is packed
    if (i < 0) return;
    const extra = more[i];
    if (extra && extra.inside !== undefined) {
      toggle(i, true);
      enter(extra.inside);
      for (let one = i + 1; one < after[i]; one++) if (space[one] === extra.inside) { pick(one, true); break; }
    } else pick(i, true);
  }
  function out() {
    if (!here) return;
    const node = spaces[here].node;
    enter(spaces[here].around);
    pick(node, true);
  }

  // Keys
  const page = (box, height) => Math.max(1, Math.floor(box.clientHeight / height) - 2);
  treeBox.addEventListener("keydown", (event) => {
    const n = chosen >= 0 ? positionOf(shownFor(chosen)) : -1, i = n >= 0 ? visible[n] : -1;
    const go = (to) => { cursor = -1; pick(visible[Math.min(Math.max(to, 0), visible.length - 1)], false); };
    const keys = {
      ArrowDown: () => go(n + 1), ArrowUp: () => go(n - 1), Home: () => go(0), End: () => go(visible.length - 1),
      PageDown: () => go(n + page(treeBox, 25)), PageUp: () => go(n - page(treeBox, 25)),
      ArrowRight: () => (i >= 0 && isParent(i) && !opened[i] ? toggle(i, true) : go(n + 1)),
      ArrowLeft: () => { if (i >= 0 && opened[i]) toggle(i, false); else if (i >= 0 && around[i] >= 0) pick(around[i], false); },
      Enter: () => inside(i), " ": () => i >= 0 && toggle(i),
      e: () => { if (i < 0 || !isParent(i)) return; const want = opened[i] ? 0 : 1; for (let one = i; one < Math.min(after[i], i + 20000); one++) opened[one] = want && isParent(one) ? 1 : 0; rank(); fields.show(true); repaint(); },
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  });
  hexBox.addEventListener("keydown", (event) => {
    const one = spaces[here], ranges = one.ranges;
    if (!ranges.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 16, ArrowUp: -16, PageDown: 16 * page(hexBox, 23), PageUp: -16 * page(hexBox, 23), Home: -Infinity, End: Infinity };
    if (event.key === "Enter") { event.preventDefault(); inside(cursor >= 0 ? leafAt(here, cursor) : chosen); return; }
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const lowest = ranges[0].from, last = ranges[ranges.length - 1], highest = last.from + last.size - 1;
    let at = cursor < 0 && Number.isFinite(step) ? (chosen >= 0 && space[chosen] === here ? start[chosen] : lowest) : Math.min(Math.max(Math.max(cursor, 0) + step, lowest), highest);
    if (byteAt(one, at) < 0) { // between what is shown
      const next = step > 0 ? ranges.find((range) => range.from > at) : ranges.filter((range) => range.from + range.size <= at).pop();
      at = step > 0 ? next.from : next.from + next.size - 1;
    }
    toByte(at);
  });
  function trouble(step) {
    if (!problems.length) return;
    let n = problems.findIndex((one) => one >= chosen);
    if (n < 0) n = problems.length;
    if (step > 0 && problems[n] === chosen) n++;
    if (step < 0) n--;
    pick(problems[(n + problems.length) % problems.length], true);
  }
  document.addEventListener("keydown", (event) => {
    if (event.target === $("search")) {
      if (event.key === "Escape") treeBox.focus();
      return;
    }
    const keys = { "/": () => $("search").focus(), n: () => trouble(1), p: () => trouble(-1), u: out, t: theme, "?": help };
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  // Search
  let hits = null, hit = -1;
  function find(text) {
    const address = /^(?:@(\w+)\+)?(0x[0-9a-f]+|\d+)$/i.exec(text);
    if (address) {
      const s = address[1] === undefined ? (text.startsWith("@") ? -1 : here) : spaces.findIndex((one, i) => i && one.start === Number(address[1]));
      const at = Number(address[2]);
      if (s >= 0 && byteAt(spaces[s], at) >= 0) { enter(s); toByte(at); return true; }
    }
    const low = text.toLowerCase(), match = new Uint8Array(strings.length);
    strings.forEach((one, i) => { match[i] = one.toLowerCase().includes(low) ? 1 : 0; });
    match[0] = 0;
    hits = [];
    for (let i = 0; i < count; i++) if (match[name[i]] || match[value[i]] || match[meaning[i]] || match[problem[i]]) hits.push(i);
    return hits.length > 0;
  }
  $("search").addEventListener("input", () => { hits = null; $("search").classList.remove("none"); });
  $("search").addEventListener("keydown", (event) => {
    const text = $("search").value.trim();
    if (event.key !== "Enter" || !text) return;
    if (hits === null) { hit = -1; $("search").classList.toggle("none", !find(text)); }
    if (!hits || !hits.length) return;
    hit = (hit + (event.shiftKey ? hits.length - 1 : 1)) % hits.length;
    pick(hits[hit], true);
  });

  // Around it
  function theme() {
    const root = document.documentElement, dark = root.dataset.theme === "dark";
    root.dataset.theme = dark ? "light" : "dark";
  }
  function help() {
    $("keys").hidden = !$("keys").hidden;
    $("help").setAttribute("aria-expanded", !$("keys").hidden);
  }
  const dark = matchMedia("(prefers-color-scheme: dark)");
  document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
  dark.addEventListener("change", () => { document.documentElement.dataset.theme = dark.matches ? "dark" : "light"; });
  $("theme").addEventListener("click", theme);
  $("help").addEventListener("click", help);
  $("next").addEventListener("click", () => trouble(1));
  $("previous").addEventListener("click", () => trouble(-1));
  {
    const split = $("split"), side = $("bytes");
    const to = (width) => { side.style.width = `${Math.min(Math.max(width, 260), innerWidth - 300)}px`; };
    split.addEventListener("pointerdown", (event) => { split.setPointerCapture(event.pointerId); event.preventDefault(); });
    split.addEventListener("pointermove", (event) => { if (split.hasPointerCapture(event.pointerId)) to(event.clientX); });
    split.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -24, ArrowRight: 24 }[event.key];
      if (step) { event.preventDefault(); to(side.offsetWidth + step); }
    });
  }

  $("file").textContent = data.path;
  $("file").title = data.path;
  $("about").textContent = `${data.codec}: ${data.title}, ${amount(data.size)}`;
  if (data.notes.length) {
    $("notes").hidden = false;
    $("notes").append(...data.notes.map((one) => make("span", "", one)));
  }
  if (problems.length) {
    $("trouble").hidden = false;
    $("count").textContent = `${problems.length.toLocaleString("en")} problem${problems.length === 1 ? "" : "s"}`;
  }
  $("ruler").append(make("span", "at", ""), ...Array.from({ length: 16 }, (_, i) => make("b", "", hex(i, 2))));

  // At first: the outermost, as far as there is room, and what was asked for.
  const below = new Int32Array(count);
  let tops = 0;
  for (let i = 0; i < count; i++) if (around[i] < 0) tops++; else below[around[i]]++;
  for (let level = 0, shown = tops; level < 5; level++) {
    const at = [];
    for (let i = 0; i < count; i++) if (depth[i] === level && isParent(i) && (around[i] < 0 || opened[around[i]])) at.push(i);
    shown += at.reduce((sum, i) => sum + below[i], 0);
    if (shown > 70) break;
    at.forEach((i) => { opened[i] = 1; });
  }
  if (count && tops < 200 && isParent(0) && below[0] < 40) opened[0] = 1;
  if (problems.length <= 40) for (let i = 0; i < count; i++) if (troubled[i]) opened[i] = 1;
  rank();
  let first = -1;
  if (data.focus.length) {
    let s = 0;
    for (const step of data.focus.slice(0, -1)) s = spaces.findIndex((one) => one.around === s && one.start === step);
    const at = data.focus[data.focus.length - 1];
    if (s >= 0) {
      first = leafAt(s, at);
      if (data.row !== null) {
        for (let i = 0; i < count; i++) if (more[i] && more[i].row === data.row && space[i] === s && start[i] === at) { first = i; opened[i] = 1; break; }
        rank();
      } else { here = s; cursor = at; }
    }
  }
  trail();
  bytes.show(true);
  fields.show(true);
  if (first >= 0) {
    const at = cursor;
    pick(first, true);
    cursor = at;
    repaint();
  } else if (problems.length) pick(problems.find((i) => !isParent(i)) ?? problems[0], true);
  else if (count) pick(0, false);
  document.body.dataset.ready = "true";
})();

/* The components of A2UI's basic catalog, made of elements. Texts become text nodes, addresses are checked.

Each is made once for its place in a surface, by `(component, place)`, and then drawn again whenever the data change.
`place` has the `scope` of the component, `build(id)` and `list(children)` for its children, and `press()` for its action. */

const COMPONENTS = {
  Text: textView,
  Image: imageView,
  Icon: iconView,
  Video: (component, place) => mediaView("video", component, place),
  AudioPlayer: (component, place) => mediaView("audio", component, place),
  Row: (component, place) => boxView("row", component, place),
  Column: (component, place) => boxView("column", component, place),
  List: listView,
  Card: ({ child }, { build }) => fillView(element("div", "a2ui-card"), () => [build(child)]),
  Tabs: tabsView,
  Modal: modalView,
  Divider: ({ axis }) => still(element("hr", axis === "vertical" ? "a2ui-vertical" : "")),
  Button: buttonView,
  TextField: textFieldView,
  CheckBox: checkBoxView,
  ChoicePicker: choicePickerView,
  Slider: sliderView,
  DateTimeInput: dateTimeView,
};

const HEADINGS = new Set(["h1", "h2", "h3", "h4", "h5"]);
const MOST_OPTIONS = 200;
const JUSTIFY = { start: "flex-start", center: "center", end: "flex-end", spaceBetween: "space-between", spaceAround: "space-around", spaceEvenly: "space-evenly", stretch: "stretch" };
const ALIGN = { start: "flex-start", center: "center", end: "flex-end", stretch: "stretch" };

const still = (node) => ({ node, update() {} });
const fillView = (node, children) => ({ node, update() { arrange(node, children()); } });
const choose = (table, key, otherwise) => (typeof key === "string" && Object.hasOwn(table, key) ? table[key] : otherwise);

/* Puts nodes into a box in their order, and moves none that may stay: a frame that is moved loads anew. */
function arrange(box, nodes) {
  const wanted = nodes.filter(Boolean), kept = new Set(wanted);
  for (const child of [...box.children]) if (!kept.has(child)) child.remove();
  wanted.forEach((node, at) => {
    if (box.children[at] !== node) box.insertBefore(node, box.children[at] ?? null);
  });
}

/* ---- to read ---- */

function textView({ text, variant }, { scope }) {
  const heading = HEADINGS.has(variant);
  const node = element(heading ? variant : "div", variant === "caption" ? "a2ui-text a2ui-caption" : "a2ui-text");
  let shown;
  return { node, update() {
    const words = scope.textOf(text);
    if (words === shown) return;
    shown = words;
    node.replaceChildren();
    // a line alone is no list: it may be the middle of a sentence in a row
    if (heading) inline(node, words.replace(/^#{1,6}\s+/, ""));
    else if (/^\s*[-*]\s[^\n]*$/.test(words)) inline(node, words);
    else node.append(...markdown(words));
  } };
}

/* Of images of elsewhere, in pixels: their frame has to have a height before they are there. */
const IMAGE_HEIGHTS = { icon: 40, avatar: 40, smallFeature: 130, mediumFeature: 240, largeFeature: 340, header: 150 };

function imageView({ url, description, fit, variant }, { scope }) {
  const size = choose(IMAGE_HEIGHTS, variant) ? variant : "mediumFeature", node = element("div", `a2ui-image a2ui-${size}`);
  let shown;
  return { node, update() {
    const address = scope.textOf(url), words = scope.textOf(description);
    if (shown === address) return;
    shown = address;
    const isHere = /^data:image\/[\w.+-]+[;,]/.test(address) && address.length < MOST_TEXT;
    const whole = isHere ? address : largeImage(scope.valueOf(url));
    if (!whole) return node.replaceChildren(outsideMedia("img", address, words, IMAGE_HEIGHTS[size]));
    const image = element("img");
    image.src = whole;
    image.alt = words;
    image.style.objectFit = choose({ contain: "contain", cover: "cover", none: "none", scaleDown: "scale-down" }, fit, "fill");
    node.replaceChildren(image);
  } };
}

/* Images within the data may be longer than any text. */
const largeImage = (value) => (typeof value === "string" && /^data:image\/[\w.+-]+[;,]/.test(value) && value.length < 2_000_000 ? value : "");

function mediaView(tag, { url, description }, { scope }) {
  const node = element("div", "a2ui-media");
  let shown;
  return { node, update() {
    const address = scope.textOf(url);
    if (shown === address) return;
    shown = address;
    node.replaceChildren(outsideMedia(tag, address, scope.textOf(description)));
  } };
}

/* ---- to arrange ---- */

function boxView(direction, { children, justify, align }, { list }) {
  const node = element("div", `a2ui-box a2ui-${direction}`);
  node.style.justifyContent = choose(JUSTIFY, justify, "");
  node.style.alignItems = choose(ALIGN, align, "");
  return fillView(node, () => list(children));
}

function listView({ children, direction, align, listStyle }, { list }) {
  const node = element(listStyle === "ordered" ? "ol" : "ul", `a2ui-list a2ui-box a2ui-${direction === "horizontal" ? "row" : "column"}`);
  if (listStyle === "ordered" || listStyle === "unordered") node.classList.add("a2ui-marked");
  node.style.alignItems = choose(ALIGN, align, "");
  const items = new Map();
  const itemOf = (child) => {
    if (!items.has(child)) items.set(child, element("li"));
    if (child.parentNode !== items.get(child)) items.get(child).append(child);
    return items.get(child);
  };
  return { node, update() {
    const shown = list(children).filter(Boolean);
    for (const child of items.keys()) if (!shown.includes(child)) items.delete(child);
    arrange(node, shown.map(itemOf));
  } };
}

function tabsView({ tabs }, { scope, build, changed }) {
  const node = element("div", "a2ui-tabs"), titles = element("div", "a2ui-titles"), shown = element("div"), id = newId();
  const all = (Array.isArray(tabs) ? tabs : []).slice(0, MOST_OPTIONS);
  let current = 0;
  titles.role = "tablist";
  shown.role = "tabpanel";
  const buttons = all.map((_, at) => {
    const made = button("", () => { current = at; changed(); });
    made.role = "tab";
    made.id = `${id}-${at}`;
    return made;
  });
  titles.append(...buttons);
  titles.onkeydown = ({ key }) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
    if (!step || !all.length) return;
    current = (current + step + all.length) % all.length;
    changed();
    buttons[current].focus();
  };
  node.append(titles, shown);
  return { node, update() {
    buttons.forEach((made, at) => {
      made.textContent = scope.textOf(all[at]?.title);
      made.ariaSelected = String(at === current);
      made.tabIndex = at === current ? 0 : -1;
    });
    if (buttons[current]) shown.setAttribute("aria-labelledby", buttons[current].id);
    arrange(shown, [all[current] && build(all[current].child)]);
  } };
}

function modalView({ trigger, content }, { build }) {
  const node = element("div"), opener = element("div", "a2ui-opener"), dialog = element("dialog", "a2ui-modal");
  const close = button("Close", () => dialog.close()), box = element("div");
  opener.onclick = () => { if (!dialog.open) dialog.showModal(); };
  dialog.append(box, close);
  node.append(opener, dialog);
  return { node, update() {
    arrange(opener, [build(trigger)]);
    arrange(box, [build(content)]);
  } };
}

/* ---- to act and to fill in ---- */

function buttonView(component, { scope, build, press }) {
  const node = element("div", "a2ui-action"), problem = element("small", "a2ui-problem");
  const made = button("", press, choose({ primary: "a2ui-primary", borderless: "a2ui-borderless" }, component.variant, ""));
  node.append(made, problem);
  return { node, update() {
    arrange(made, [build(component.child)]);
    const wrong = problemOf(component.checks, scope);
    made.disabled = wrong !== "";
    problem.textContent = wrong;
  } };
}

/* The message of the first check that fails; empty if there is none. */
function problemOf(checks, scope) {
  if (!Array.isArray(checks)) return "";
  const failed = checks.slice(0, 50).find((rule) => !scope.valueOf(rule?.condition ?? rule));
  return failed ? asText(failed.message) || "This is not valid yet." : "";
}

/* An input with its label, and what is wrong with it once somebody has been there. */
function fieldView(input, { label, checks, value, validationRegexp }, place, { read, show, tag = "label" }) {
  const node = element("div", "a2ui-field"), words = element(tag, "a2ui-label"), problem = element("small", "a2ui-problem");
  const id = newId();
  let touched = false;
  input.id = id;
  if (tag === "label") words.htmlFor = id;
  problem.id = `${id}-problem`;
  problem.role = "status";
  input.setAttribute("aria-describedby", problem.id);
  input.oninput = () => {
    touched = true;
    place.scope.write(value, read());
    place.changed();
  };
  input.addEventListener("focusout", () => { touched = true; place.changed(); });
  node.append(words, input, problem);
  return { node, update() {
    words.textContent = place.scope.textOf(label);
    words.hidden = !words.textContent;
    show(place.scope.valueOf(value));
    const fits = typeof validationRegexp !== "string" || hasForm(asText(read()), validationRegexp);
    const wrong = problemOf(checks, place.scope) || (fits ? "" : "This does not have the right form.");
    problem.textContent = touched ? wrong : "";
    input.setAttribute("aria-invalid", String(touched && wrong !== ""));
  } };
}

/* A pattern that is none holds nobody up. */
function hasForm(value, pattern) {
  try { return matches(value, pattern); } catch { return true; }
}

/* Shows a value that somebody may be changing at this moment. */
const showIn = (input) => (value) => {
  const words = asText(value);
  if (value !== undefined && input.value !== words) input.value = words;
};

function textFieldView(component, place) {
  const input = element(component.variant === "longText" ? "textarea" : "input");
  if (component.variant !== "longText") input.type = choose({ number: "number", obscured: "password" }, component.variant, "text");
  if (component.variant === "obscured") input.autocomplete = "off";
  else if (component.variant === "longText") input.rows = 3;
  return fieldView(input, component, place, { read: () => input.value, show: showIn(input) });
}

function checkBoxView(component, place) {
  const input = element("input");
  input.type = "checkbox";
  const view = fieldView(input, component, place, { read: () => input.checked, show(value) { if (value !== undefined) input.checked = Boolean(value); } });
  view.node.classList.add("a2ui-check");
  return view;
}

function sliderView(component, place) {
  const input = element("input"), box = element("div", "a2ui-slider"), shown = element("output");
  const number = (value, otherwise) => (Number.isFinite(value) ? value : otherwise);
  Object.assign(input, { type: "range", min: number(component.min, 0), max: number(component.max, 100), step: number(component.step, "any") });
  const view = fieldView(input, component, place, { read: () => Number(input.value), show(value) {
    if (value !== undefined && Number(value) !== Number(input.value)) input.value = Number(value);
    shown.textContent = input.value;
  } });
  input.replaceWith(box);
  box.append(input, shown);
  return view;
}

function dateTimeView(component, place) {
  const input = element("input"), { enableDate, enableTime, min, max } = component;
  input.type = enableDate && !enableTime ? "date" : enableTime && !enableDate ? "time" : "datetime-local";
  const view = fieldView(input, component, place, { read: () => input.value, show: showIn(input) });
  const { update } = view;
  view.update = () => {
    for (const [name, value] of Object.entries({ min, max })) if (value !== undefined) input[name] = place.scope.textOf(value);
    update();
  };
  return view;
}

function choicePickerView(component, place) {
  const { options, variant, displayStyle, filterable, value } = component;
  const box = element("div", displayStyle === "chips" ? "a2ui-choices a2ui-chips" : "a2ui-choices"), filter = element("input", "a2ui-filter");
  const many = variant === "multipleSelection", name = newId();
  const choices = (Array.isArray(options) ? options : []).slice(0, MOST_OPTIONS).map((option) => {
    const row = element("label"), input = element("input"), words = element("span");
    Object.assign(input, { type: many ? "checkbox" : "radio", name, value: asText(option?.value) });
    row.append(input, words);
    box.append(row);
    return { row, input, words, option };
  });
  box.role = many ? "group" : "radiogroup";
  filter.type = "search";
  filter.placeholder = "Filter";
  filter.ariaLabel = "Filter";
  filter.oninput = (event) => {
    event.stopPropagation();
    const wanted = filter.value.toLowerCase();
    for (const { row, words } of choices) row.hidden = !words.textContent.toLowerCase().includes(wanted);
  };
  if (filterable) box.prepend(filter);
  const read = () => choices.filter(({ input }) => input.checked).map(({ input }) => input.value);
  const view = fieldView(box, component, place, { read, tag: "div", show(current) {
    const chosen = (Array.isArray(current) ? current : [current]).map(asText);
    for (const { input, words, option } of choices) {
      words.textContent = place.scope.textOf(option?.label);
      if (value !== undefined && current !== undefined) input.checked = chosen.includes(input.value);
    }
    box.ariaLabel = place.scope.textOf(component.label);
  } });
  return view;
}

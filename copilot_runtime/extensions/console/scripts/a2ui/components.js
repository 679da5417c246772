/* The icons of A2UI's basic catalog, as strokes on a ground of 24 by 24. */

const PERSON = "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8M4 21c1-4 4-6 8-6s7 2 8 6";
const CALENDAR = "M4 6h16v14H4zM4 10h16M8 3v4M16 3v4";
const PHONE = "M5 4h4l2 5-2.5 1.5a12 12 0 0 0 5 5L15 13l5 2v4a2 2 0 0 1-2 2A15 15 0 0 1 3 6a2 2 0 0 1 2-2";
const HEART = "M12 20s-8-5-8-11a4.5 4.5 0 0 1 8-2.5A4.5 4.5 0 0 1 20 9c0 6-8 11-8 11";
const STAR = "M12 3.5l2.600 5.400 5.900.8-4.3 4.100 1 5.900L12 16.900l-5.200 2.800 1-5.900L3.5 9.700l5.900-.8z";
const BELL = "M6 17V11a6 6 0 0 1 12 0v6l1.5 1.5h-15zM10 21h4";
const EYE = "M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12M12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6";
const SPEAKER = "M4 9.5h3.5L12 5.5v13l-4.5-4H4z";
const CIRCLE = "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18";
const STRIKE = "M4 4l16 16";

const ICONS = {
  accountCircle: `${CIRCLE}M12 12.5a3 3 0 1 0 0-6 3 3 0 0 0 0 6M6.5 18.5c1-2.5 3-3.5 5.5-3.5s4.5 1 5.5 3.5`,
  add: "M12 5v14M5 12h14",
  arrowBack: "M19 12H5M11 6l-6 6 6 6",
  arrowForward: "M5 12h14M13 6l6 6-6 6",
  attachFile: "M18 11l-6.5 6.5a4 4 0 0 1-5.700-5.700L13 4.700a2.700 2.700 0 0 1 3.800 3.800l-7 7a1.3 1.3 0 0 1-1.900-1.900L14 7.5",
  calendarToday: CALENDAR,
  call: PHONE,
  camera: "M4 7h4l1.5-2.5h5L16 7h4v12H4zM12 16.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7",
  check: "M5 12.5l4.5 4.5L19 7.5",
  close: "M6 6l12 12M18 6L6 18",
  delete: "M5 7h14M9 7V4.5h6V7M7 7l1 13h8l1-13M10.5 10.5v6M13.5 10.5v6",
  download: "M12 4v11M7 10.5l5 5 5-5M5 20h14",
  edit: "M5 19l1-4L16.5 4.5l3 3L9 18z",
  event: `${CALENDAR}M9 15l2 2 4-4`,
  error: `${CIRCLE}M12 7v6M12 16v.5`,
  fastForward: "M4 6l7 6-7 6zM13 6l7 6-7 6z",
  favorite: HEART,
  favoriteOff: `${HEART}${STRIKE}`,
  folder: "M3.5 6h6l2 2.5h9V19h-17z",
  help: `${CIRCLE}M9.5 9.5a2.5 2.5 0 1 1 3.5 2.3c-.7.3-1 .7-1 1.700M12 16.5v.5`,
  home: "M4 11l8-7 8 7v9h-5.5v-6h-5v6H4z",
  info: `${CIRCLE}M12 11v6M12 7.5V8`,
  locationOn: "M12 21s-7-6-7-11a7 7 0 0 1 14 0c0 5-7 11-7 11M12 12.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3",
  lockOpen: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 6.800-1.200",
  mail: "M3.5 6h17v12h-17zM3.5 7l8.5 6 8.5-6",
  menu: "M4 7h16M4 12h16M4 17h16",
  moreVert: "M12 5.5v.5M12 12v.5M12 18.5v.5",
  moreHoriz: "M5.5 12h.5M12 12h.5M18.5 12h.5",
  notificationsOff: `${BELL}${STRIKE}`,
  notifications: BELL,
  pause: "M8 5v14M16 5v14",
  payment: "M3.5 6h17v12h-17zM3.5 10h17M6.5 15h4",
  person: PERSON,
  phone: PHONE,
  photo: "M3.5 5h17v14h-17zM8 10.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3M4 17.5l5.5-5 4 3.5 3-2.5 4 3.5",
  play: "M7 5l12 7-12 7z",
  print: "M7 8V4h10v4M7 16H4V8h16v8h-3M7 13h10v7H7z",
  refresh: "M19 12a7 7 0 1 1-2-5l2 2M19 4v5h-5",
  rewind: "M20 6l-7 6 7 6zM11 6l-7 6 7 6z",
  search: "M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13M15.5 15.5L20 20",
  send: "M4 5l16 7-16 7 3-7zM7 12h13",
  settings: "M12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6M12 3v3M12 18v3M3 12h3M18 12h3M5.600 5.600l2.100 2.100M16.3 16.3l2.100 2.100M5.600 18.400l2.100-2.100M16.3 7.700l2.100-2.100",
  share: "M6 14.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5M17.5 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5M17.5 21a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5M8.200 10.900l7-4M8.200 13.200l7 4",
  shoppingCart: "M3 4h2.5l2.5 11h9.5l2-8H6.5M9 19.5v.5M17 19.5v.5",
  skipNext: "M6 5l10 7-10 7zM18.5 5v14",
  skipPrevious: "M18 5L8 12l10 7zM5.5 5v14",
  star: STAR,
  starHalf: `${STAR}M12 4v13`,
  starOff: `${STAR}${STRIKE}`,
  stop: "M6 6h12v12H6z",
  upload: "M12 16V5M7 9.5l5-5 5 5M5 20h14",
  visibility: EYE,
  visibilityOff: `${EYE}${STRIKE}`,
  volumeDown: `${SPEAKER}M15.5 9.5a4 4 0 0 1 0 5`,
  volumeMute: SPEAKER,
  volumeOff: `${SPEAKER}M16 9.5l5 5M21 9.5l-5 5`,
  volumeUp: `${SPEAKER}M15.5 9.5a4 4 0 0 1 0 5M18 7a7.5 7.5 0 0 1 0 10`,
  warning: "M12 4l9 16H3zM12 10v5M12 17.5v.5",
};
const NO_ICON = "M6 6h12v12H6z";  // for names that are not in the catalog
const LONGEST_PATH = 4_000;

function iconView({ name }, { scope }) {
  const node = element("span", "", "a2ui-icon");
  node.role = "img";
  return { node, update() {
    const own = typeof name?.svgPath === "string" ? name.svgPath : "", wanted = own ? "" : scope.textOf(name);
    node.ariaLabel = wanted || "Icon";
    node.replaceChildren(pathIcon(own || choose(ICONS, wanted, NO_ICON), own ? "" : "a2ui-stroke"));
  } };
}

function pathIcon(path, style) {
  const make = (tag) => document.createElementNS("http://www.w3.org/2000/svg", tag);
  const icon = make("svg"), line = icon.appendChild(make("path"));
  icon.setAttribute("viewBox", "0 0 24 24");
  icon.setAttribute("class", style);
  if (path.length < LONGEST_PATH && /^[\d\s.,a-zA-Z+-]*$/.test(path)) line.setAttribute("d", path);
  return icon;
}

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
  Card: ({ child }, { build }) => fillView(element("div", "", "a2ui-card"), () => [build(child)]),
  Tabs: tabsView,
  Modal: modalView,
  Divider: ({ axis }) => still(element("hr", "", axis === "vertical" ? "a2ui-vertical" : "")),
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

/* Puts nodes into a box in order, without moving nodes unnecessarily: a moved iframe reloads. */
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
  const node = element(heading ? variant : "div", "", variant === "caption" ? "a2ui-text a2ui-caption" : "a2ui-text");
  let shown;
  return { node, update() {
    const words = scope.textOf(text);
    if (words === shown) return;
    shown = words;
    node.replaceChildren();
    // a single line is not a list: it may be the middle of a sentence in a row
    if (heading) node.append(inlineMarkdown(words.replace(/^#{1,6}\s+/, "")));
    else if (/^\s*[-*]\s[^\n]*$/.test(words)) node.append(inlineMarkdown(words));
    else node.append(markdown(words));
  } };
}

/* Heights of external images in pixels: their frames need a height before the images are loaded. */
const IMAGE_HEIGHTS = { icon: 40, avatar: 40, smallFeature: 130, mediumFeature: 240, largeFeature: 340, header: 150 };

function imageView({ url, description, fit, variant }, { scope }) {
  const size = choose(IMAGE_HEIGHTS, variant) ? variant : "mediumFeature", node = element("div", "", `a2ui-image a2ui-${size}`);
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

/* Data URLs of images may be longer than any text. */
const largeImage = (value) => (typeof value === "string" && /^data:image\/[\w.+-]+[;,]/.test(value) && value.length < 2_000_000 ? value : "");

function mediaView(tag, { url, description }, { scope }) {
  const node = element("div", "", "a2ui-media");
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
  const node = element("div", "", `a2ui-box a2ui-${direction}`);
  node.style.justifyContent = choose(JUSTIFY, justify, "");
  node.style.alignItems = choose(ALIGN, align, "");
  return fillView(node, () => list(children));
}

function listView({ children, direction, align, listStyle }, { list }) {
  const node = element(listStyle === "ordered" ? "ol" : "ul", "", `a2ui-list a2ui-box a2ui-${direction === "horizontal" ? "row" : "column"}`);
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
  const node = element("div", "", "a2ui-tabs"), titles = element("div", "", "a2ui-titles"), shown = element("div"), id = newId();
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
  const node = element("div"), opener = element("div", "", "a2ui-opener"), dialog = element("dialog", "", "a2ui-modal");
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
  const node = element("div", "", "a2ui-action"), problem = element("small", "", "a2ui-problem");
  const made = button("", press, choose({ primary: "a2ui-primary", borderless: "a2ui-borderless" }, component.variant, ""));
  node.append(made, problem);
  return { node, update() {
    arrange(made, [build(component.child)]);
    const wrong = problemOf(component.checks, scope);
    made.disabled = wrong !== "";
    problem.textContent = wrong;
  } };
}

/* Returns the message of the first failed check; empty if all pass. */
function problemOf(checks, scope) {
  if (!Array.isArray(checks)) return "";
  const failed = checks.slice(0, 50).find((rule) => !scope.valueOf(rule?.condition ?? rule));
  return failed ? asText(failed.message) || "This is not valid yet." : "";
}

/* An input with its label, and its validation error once the user has edited or left it. */
function fieldView(input, { label, checks, value, validationRegexp }, place, { read, show, tag = "label" }) {
  const node = element("div", "", "a2ui-field"), words = element(tag, "", "a2ui-label"), problem = element("small", "", "a2ui-problem");
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

/* An invalid pattern accepts every value. */
function hasForm(value, pattern) {
  try { return matches(value, pattern); } catch { return true; }
}

/* Shows a value in an input that the user may be editing. */
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
  const input = element("input"), box = element("div", "", "a2ui-slider"), shown = element("output");
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
  const box = element("div", "", displayStyle === "chips" ? "a2ui-choices a2ui-chips" : "a2ui-choices"), filter = element("input", "", "a2ui-filter");
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

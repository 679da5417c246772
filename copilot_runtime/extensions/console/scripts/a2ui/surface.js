/* Surfaces, which agents draw with components of the catalog. No agent output can break the page. */

const MOST_OPERATIONS = 1_000;
const MOST_COMPONENTS = 1_000;
const MOST_NODES = 3_000;      // drawn components, counting each list item
const MOST_ITEMS = 500;        // per list
const DEEPEST = 32;

/* The activity of a surface, from the first progress to its final state. */
function surfaceActivityView() {
  const node = element("div", "", "surfaces"), status = element("div"), surfaces = new Map();
  node.append(status);
  return { node, update({ content }) {
    const operations = Array.isArray(content?.a2ui_operations) ? content.a2ui_operations.slice(0, MOST_OPERATIONS) : null;
    status.replaceChildren(...(operations ? [] : lifecycleNotes(content)));
    for (const [id, found] of groupOperations(operations ?? [])) {
      if (!surfaces.has(id)) surfaces.set(id, new Surface(id));
      surfaces.get(id).load(found);
    }
    arrange(node, [status, ...[...surfaces.values()].filter((one) => one.exists).map((one) => one.node)]);
  } };
}

/* The status of a surface that is not drawn yet, or has failed. */
function lifecycleNotes(content) {
  const { status, progressTokens, attempt, maxAttempts, error, errors, attempts, debugExposure } = content ?? {};
  const tokens = Number.isFinite(progressTokens) ? `, ${progressTokens.toLocaleString("en")} tokens so far` : "";
  const words = {
    building: `A surface is being written${tokens} …`,
    retrying: `The surface could not be drawn and is written again, attempt ${asText(attempt)} of ${asText(maxAttempts)} …`,
    failed: [...new Set(["The surface could not be drawn.", asText(error)])].join(" "),
  };
  const note = element("div", choose(words, status, "A surface without anything to draw."), status === "failed" ? "banner" : "note a2ui-status");
  note.role = "status";
  const wrong = errors ?? attempts;
  if (!Array.isArray(wrong) || debugExposure === "hidden") return [note];
  const details = element("details", "", "note"), list = element("pre", JSON.stringify(wrong, null, 2).slice(0, MOST_TEXT));
  details.open = debugExposure === "verbose";
  details.append(element("summary", "What was wrong"), list);
  return [note, details];
}

function groupOperations(operations) {
  const groups = new Map();
  for (const operation of operations) {
    const id = KINDS.map((kind) => operation?.[kind]?.surfaceId).find((one) => typeof one === "string");
    if (id === undefined) continue;
    if (!groups.has(id)) groups.set(id, []);
    groups.get(id).push(operation);
  }
  return groups;
}

const KINDS = ["createSurface", "updateComponents", "updateDataModel", "deleteSurface"];

/* One surface: its components, its data, and its DOM nodes. */
class Surface {
  node = element("section", "", "a2ui");
  exists = false;
  #data = new SurfaceData();
  #components = new Map();
  #views = new Map();      // by position in the tree
  #left = 0;               // how many more may be drawn
  #isCut = false;

  constructor(id) {
    this.id = id;
    this.node.ariaLabel = "Surface";
  }

  /* Applies all operations of the surface: the earlier ones and new ones. */
  load(operations) {
    const updates = [];
    this.#components = new Map();
    this.#isCut = false;
    this.exists = true;
    for (const { updateComponents, updateDataModel, deleteSurface } of operations) {
      if (Array.isArray(updateComponents?.components)) updateComponents.components.forEach((one) => this.#learn(one));
      if (updateDataModel) updates.push(updateDataModel);
      if (deleteSurface) [this.exists, updates.length] = [false, 0];
      else this.exists = true;
    }
    this.#data.load(updates);
    this.draw();
  }

  #learn(component) {
    if (typeof component?.id !== "string") return;
    if (this.#components.size < MOST_COMPONENTS || this.#components.has(component.id)) this.#components.set(component.id, component);
    else this.#isCut = true;
  }

  draw() {
    this.#left = MOST_NODES;
    const before = this.#views;
    this.#views = new Map();
    const root = this.#components.has("root") ? this.#build("root", new Scope(this.#data), [], 0, before) : null;
    const limits = [this.#isCut && `the first ${MOST_COMPONENTS.toLocaleString("en")} components`, this.#left <= 0 && `${MOST_NODES.toLocaleString("en")} parts`];
    const reached = limits.filter(Boolean).join(" and ");
    arrange(this.node, [root, reached && this.#note(`Only ${reached} of this surface are drawn.`)]);
  }

  /* Returns the node of a component at a position, reused if the component is unchanged. */
  #build(id, scope, trail, at, before) {
    if (this.#left-- <= 0) return null;
    const mark = `${id}@${scope.path}`, component = this.#components.get(id);
    if (component === undefined) return this.#note("…");  // not received yet
    if (trail.some((one) => one.mark === mark)) return this.#note(`${id} is its own child.`);
    if (trail.length >= DEEPEST) return this.#note("This surface is nested too deeply.");
    const here = [...trail, { mark, at }], key = JSON.stringify(here), known = before.get(key);
    const stays = known && (known.component === component || JSON.stringify(known.component) === JSON.stringify(component));
    const view = stays ? known : this.#make(component, scope);
    view.component = component;
    let children = 0;
    view.build = (child, inner = scope) => (typeof child === "string" ? this.#build(child, inner, here, children++, before) : null);
    this.#views.set(key, view);
    view.update();
    return view.node;
  }

  #make(component, scope) {
    const make = choose(COMPONENTS, component.component);
    if (!make) return still(element("span", `This page has no component ${JSON.stringify(component.component ?? "")}.`, "a2ui-unknown"));
    const view = {};
    const build = (id, inner) => view.build(id, inner);
    Object.assign(view, make(component, {
      scope, build,
      list: (children) => listChildren(children, scope, build),
      press: () => this.#press(component, scope),
      changed: () => this.draw(),
    }));
    decorate(view.node, component, scope);
    return view;
  }

  /* Handles a click: sends it to the agent, or opens a URL. */
  #press({ id, action }, scope) {
    const { event, functionCall } = action ?? {};
    if (functionCall?.call === "openUrl") return openUrl(scope.valueOf(functionCall.args?.url));
    if (typeof event?.name !== "string") return undefined;
    const context = Object.entries(event.context ?? {}).map(([key, value]) => [key, scope.valueOf(value) ?? null]);
    return click({
      name: event.name, surfaceId: this.id, sourceComponentId: id,
      context: Object.fromEntries(context), timestamp: new Date().toISOString(),
    });
  }

  #note(words) { return element("span", words, "a2ui-unknown"); }
}

/* Returns children by id, or one component per item of a list in the data. */
function listChildren(children, scope, build) {
  if (Array.isArray(children)) return children.slice(0, MOST_COMPONENTS).map((id) => build(id));
  if (typeof children?.componentId !== "string" || typeof children.path !== "string") return [];
  const items = scope.valueOf({ path: children.path });
  if (!Array.isArray(items)) return [];
  return items.slice(0, MOST_ITEMS).map((_, index) => build(children.componentId, scope.item(children.path, index)));
}

function decorate(node, { weight, accessibility }, scope) {
  if (Number.isFinite(weight)) node.style.flex = `${Math.min(Math.max(weight, 0), 100)} 1 0`;
  if (accessibility?.label) node.ariaLabel = scope.textOf(accessibility.label);
}

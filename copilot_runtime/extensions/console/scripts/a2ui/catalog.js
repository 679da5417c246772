/* What this page tells agents of the components that it draws. */

const CATALOG_ID = "https://a2ui.org/specification/v0_9/basic_catalog.json";
/* Servers and agents know these entries of the context by their descriptions. */
const CAPABILITIES = "A2UI catalog capabilities: available catalog IDs and custom component definitions the client can render.";
const COMPONENT_SCHEMA = "A2UI Component Schema \u2014 available components for generating UI surfaces. Use these component names and properties when creating A2UI operations.";

/* What is the same for many properties is said once, in `notes`: agents get the catalog with each run. */
const bound = (description) => (description ? { description } : {});
const childId = { type: "string", description: "id of a component" };
const childIds = { description: "ids of components, or {\"componentId\": \"id\", \"path\": \"/list\"} for one per item" };
const oneOf = (...names) => ({ enum: names });
const checks = { type: "array" };
const box = { children: childIds, justify: oneOf("start", "center", "end", "spaceBetween", "spaceAround", "spaceEvenly", "stretch"), align: oneOf("start", "center", "end", "stretch") };
const of = (properties, ...required) => ({ type: "object", properties, required });

const CATALOG = {
  catalogId: CATALOG_ID,
  components: {
    Text: of({ text: bound("Markdown without HTML"), variant: oneOf("h1", "h2", "h3", "h4", "h5", "caption", "body") }, "text"),
    Image: of({ url: bound(), description: bound(), fit: oneOf("contain", "cover", "fill", "none", "scaleDown"), variant: oneOf("icon", "avatar", "smallFeature", "mediumFeature", "largeFeature", "header") }, "url"),
    Icon: of({ name: { description: "such as add, check, close, event, favorite, home, info, locationOn, mail, person, phone, search, send, settings, star, warning" } }, "name"),
    Video: of({ url: bound() }, "url"),
    AudioPlayer: of({ url: bound(), description: bound() }, "url"),
    Row: of(box, "children"),
    Column: of(box, "children"),
    List: of({ children: childIds, direction: oneOf("vertical", "horizontal"), align: box.align, listStyle: oneOf("ordered", "unordered", "none") }, "children"),
    Card: of({ child: childId }, "child"),
    Tabs: of({ tabs: { type: "array", items: of({ title: bound(), child: childId }, "title", "child") } }, "tabs"),
    Modal: of({ trigger: childId, content: childId }, "trigger", "content"),
    Divider: of({ axis: oneOf("horizontal", "vertical") }),
    Button: of({ child: childId, variant: oneOf("default", "primary", "borderless"), action: { description: "{\"event\": {\"name\": \"book\", \"context\": {}}}, or {\"functionCall\": {\"call\": \"openUrl\", \"args\": {\"url\": \"https://…\"}}}" }, checks }, "child", "action"),
    TextField: of({ label: bound(), value: bound("a path, which gets what is written"), variant: oneOf("shortText", "longText", "number", "obscured"), validationRegexp: { type: "string" }, checks }, "label"),
    CheckBox: of({ label: bound(), value: bound(), checks }, "label", "value"),
    ChoicePicker: of({ label: bound(), value: bound("a path to a list of texts"), options: { type: "array", items: of({ label: bound(), value: { type: "string" } }, "label", "value") }, variant: oneOf("mutuallyExclusive", "multipleSelection"), displayStyle: oneOf("checkbox", "chips"), filterable: { type: "boolean" }, checks }, "options", "value"),
    Slider: of({ label: bound(), min: { type: "number" }, max: { type: "number" }, step: { type: "number" }, value: bound(), checks }, "max", "value"),
    DateTimeInput: of({ label: bound(), value: bound("ISO 8601"), enableDate: { type: "boolean" }, enableTime: { type: "boolean" }, min: bound(), max: bound(), checks }, "value"),
  },
  notes: {
    values: "A property without a type is a value, {\"path\": \"/where\"} or {\"call\": \"function\", \"args\": {}}.",
    checks: "[{\"condition\": {\"call\": \"required\", \"args\": {\"value\": {\"path\": \"/x\"}}}, \"message\": \"…\"}]",
  },
  functions: "required, regex, length, numeric, email, and, or, not (for checks); formatString with ${/path}, formatNumber, formatCurrency, formatDate, pluralize (for texts)",
};

const SURFACE_CONTEXT = [
  { description: CAPABILITIES, value: JSON.stringify({ supportedCatalogIds: [CATALOG_ID] }) },
  { description: COMPONENT_SCHEMA, value: JSON.stringify(CATALOG) },
];

/* What the page offers to agents: to the demo, tools to try; to others, what a React page would. */

const text = (description, more = {}) => ({ type: "string", description, ...more });
const schema = (properties) => ({ type: "object", properties, required: Object.keys(properties) });
const DEMO_TOOLS = {
  set_theme: {
    description: "Switch the page between light and dark.",
    parameters: schema({ mode: text("The theme", { enum: ["light", "dark"] }) }),
    run({ mode }) {
      if (mode !== "light" && mode !== "dark") throw new Error("The theme is light or dark.");
      setTheme(mode);
      return `The page is ${mode} now.`;
    },
  },
  add_note: {
    description: "Add a note to the list beside the chat.",
    parameters: schema({ text: text("What the note says") }),
    run({ text }) {
      if (typeof text !== "string" || !text) throw new Error("A note needs a text.");
      return `The note is on the page, number ${notesOf(thread).length + 1}.`;
    },
  },
};
const isDemo = () => Boolean($("items").dataset.demo) && agent === "default";

/* The tools by name. A generated page is drawn while it is streamed, from the activity that the server derives. */
function pageTools() {
  return {
    ...(isDemo() && DEMO_TOOLS),
    ...(offers.pages && { [PAGE_TOOL]: { description: PAGE_DESCRIPTION, parameters: PAGE_PARAMETERS, run: () => "UI generated" } }),
  };
}

const runsHere = (name) => Object.hasOwn(pageTools(), name);

const offers = { surfaces: false, agents: null, pages: false };  // what the server draws with this page

const offersSurfaces = () => offers.surfaces && (offers.agents?.includes(agent) ?? true);

const offeredTools = () => Object.entries(pageTools()).map(([name, { description, parameters }]) => ({ name, description, parameters }));

async function resultOf(call) {
  try {
    return await pageTools()[call.function.name].run(JSON.parse(call.function.arguments || "{}"));
  } catch (error) {
    return JSON.stringify({ error: { code: "HANDLER_ERROR", message: error.message } });
  }
}

/* A thread's notes, which are its successful calls. */
function notesOf(conversation) {
  const calls = conversation.items.flatMap((item) => item.toolCalls ?? []);
  return calls
    .filter((call) => call.function.name === "add_note" && call.result && failureIn(call.result.content) === null)
    .map((call) => asValue(call.function.arguments)?.text)
    .filter(Boolean);
}

/* The server: plans, the event stream of one plan, and the commands of users. */

const fetchPlans = (path, accept, signal, sent) => fetchData(`/plans${path}`, accept, signal, sent);
const pathOf = (plan, task = "") => `/${encodeURIComponent(plan)}${task && task !== ROOT ? `/tasks/${encodeURIComponent(task)}` : ""}`;

const ROOT = "0";  // the plan itself, as a task

async function get(path) {
  return (await fetchPlans(path)).json();
}

/* Stops, retries or answers a plan, and returns its new state. */
async function send(plan, task, verb, sent = {}) {
  return (await fetchPlans(`${pathOf(plan, task)}/${verb}`, "application/json", undefined, sent)).json();
}

/* Calls `listen` with each event after a number, until the end of the plan. When a connection has
   ended before, a new one resumes there. */
async function follow(plan, after, listen, signal) {
  while (!signal.aborted) {
    try {
      const response = await fetchPlans(`${pathOf(plan)}/events?after=${after}`, "text/event-stream", signal);
      if (response.status === 204) return;
      for await (const found of framesOf(response)) {
        for (const { data } of found) {
          if (!data) continue;
          const event = JSON.parse(data);
          after = event.number ?? after;
          listen(event);
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status >= 400 && error.status < 500) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 1500));
  }
}

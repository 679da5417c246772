/* Shared by the data pages: requests with the credentials of the user, and error messages. */

/* Fetches a path; with a body, sends it as JSON by POST unless another method is named. */
async function fetchData(path, accept = "application/json", signal = undefined, sent = undefined, method = sent === undefined ? "GET" : "POST") {
  const headers = { accept };
  if (sent !== undefined) headers["content-type"] = "application/json";
  const response = await fetchAuthorized(path, { headers, signal, method, body: sent && JSON.stringify(sent) });
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  const words = answer.message ?? answer.error ?? `The server answered ${response.status}.`;
  if (response.status === 401) refuse(words);
  throw Object.assign(new Error(words), { status: response.status });
}

/* Runs a function, and shows its error. */
async function attempt(work) {
  $("problem").hidden = true;
  try {
    return await work();
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    const way = button("Sign in", () => askToSignIn(), "link");
    const mayHelp = error.status === 401 || (error.status === 403 && !isByLogin());
    $("problem").replaceChildren(...[error.message, error.status === 403 ? $("problem").dataset.forbidden : "", mayHelp ? way : ""].filter(Boolean).flatMap((part) => [part, " "]));
    $("problem").classList.toggle("calm", error.status === 401);
    $("problem").hidden = false;
    return undefined;
  }
}

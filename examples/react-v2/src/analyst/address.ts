import { runtimeUrl } from "../runtime";

/** The URL of a resource of the analyst, whose path is relative to the runtime. */
export const urlOf = (path: string) => `${runtimeUrl.replace(/\/$/, "")}/${path}`;
